"""The transport loop: a process sends to itself."""

from __future__ import annotations

from pscompy.plugin import Native, Transport, hookimpl
from pscompy.plugins.loop.config import VARIABLES

native = Native(__name__)


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("loop", 100, VARIABLES, native.ops, native.unavailable)
