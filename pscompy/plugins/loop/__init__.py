"""The transport loop: a process sends to itself."""

from __future__ import annotations

from pscompy.plugin import Native, Transport, hookimpl
from pscompy.plugins.loop.config import VARIABLES

_native = Native(__name__)


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("loop", 100, VARIABLES, _native.ops, _native.unavailable)
