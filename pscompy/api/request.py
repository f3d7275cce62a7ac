"""Requests, what they give, and waiting for several of them.

The types are those of `pscompy.binding._binding`; importing this module ties that extension to
the core.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING

from pscompy.binding import _binding
from pscompy.core import lib

if TYPE_CHECKING:
    from pscompy.api.connection import Connection


__all__ = [
    *("ANY_SOURCE", "ANY_TAG", "Message", "PersistentRequest", "Request", "Status"),
    *("wait_all", "wait_any"),
]


class Status(namedtuple("Status", ("source", "tag", "nbytes"))):
    """What is known of a received (or probed) message.

    `source` is a rank in a World, elsewhere the `Connection`; `nbytes` is the message's length,
    also where the buffer was shorter.
    """

    __slots__ = ()

    source: int | Connection | None
    tag: int
    nbytes: int


_binding.bind(lib.psc_api_address(), Status)

ANY_SOURCE = _binding.ANY_SOURCE
ANY_TAG = _binding.ANY_TAG
Message = _binding.Message
PersistentRequest = _binding.PersistentRequest
Request = _binding.Request
wait_all = _binding.wait_all
wait_any = _binding.wait_any
