"""The transport tcp: streams between any two processes that IP connects."""

from __future__ import annotations

from pscompy.plugin import Native, Transport, hookimpl
from pscompy.plugins.tcp.config import VARIABLES

native = Native(__name__)


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("tcp", 2, VARIABLES, native.ops, native.unavailable, everywhere=True)
