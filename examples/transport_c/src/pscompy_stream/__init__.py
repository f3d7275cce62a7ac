"""A transport of pscompy in C: Unix stream sockets between processes of one node."""

from __future__ import annotations

from pscompy.plugin import Transport, hookimpl


def _ops() -> int:
    from pscompy_stream._native import lib

    return int(lib.stream_transport())


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("stream", 4, ops=_ops)
