"""Requests, the Status of messages, and waiting for several requests.

The types are those of `pscompy.api.c._binding`; importing this module binds that extension to
the core.
"""

from __future__ import annotations

from collections import namedtuple

from pscompy.api.c import _binding
from pscompy.core import lib

__all__ = [
    *("ANY_SOURCE", "ANY_TAG", "Message", "PersistentRequest", "Request", "Status"),
    *("wait_all", "wait_any"),
]


class Status(namedtuple("Status", ("source", "tag", "nbytes"))):
    """Source, tag and length of a message that was received, or probed.

    `source` is a rank of a communicator; outside of one, the `Connection`, or None if that
    Connection is gone. `nbytes` is the message's length, also if the buffer was shorter.
    """

    __slots__ = ()

    source: int | _binding.Connection | None
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
