"""Requests, what they give, and waiting for several of them.

The types are the hand-written extension's (`pscompy._hot`); importing this module ties that
extension to the core.
"""

from __future__ import annotations

from collections import namedtuple

from pscompy import _hot
from pscompy.core import lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pscompy.connection import Connection


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


_hot.bind(lib.psc_api_address(), Status)

ANY_SOURCE = _hot.ANY_SOURCE
ANY_TAG = _hot.ANY_TAG
Message = _hot.Message
PersistentRequest = _hot.PersistentRequest
Request = _hot.Request
wait_all = _hot.wait_all
wait_any = _hot.wait_any
