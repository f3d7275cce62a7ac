"""All that plug-ins import: the hook, the declaration of a transport, and tools for both.

A plug-in is a module named by an entry point of the group "pscompy", or a file
in PSP_PLUGINDIR, that implements one hook of pluggy:

    from pscompy.plugin import Native, Transport, hookimpl

    native = Native(__name__)

    @hookimpl
    def pscompy_transport() -> Transport:
        return Transport("shm", 90, VARIABLES, native.ops, native.unavailable)

The entry point's (or file's) name is the transport's name. A transport written
in Python subclasses PythonTransport, and is declared with its class:

    return Transport("pipe", 50, python=Pipe)
"""

from __future__ import annotations

import pluggy

from pscompy.config.config import Setting, Var
from pscompy.config.parsers import (
    AUTO,
    INF,
    Parser,
    choice,
    count,
    flag,
    integer,
    nbytes,
    priority,
    seconds,
    size,
    text,
)
from pscompy.transport.declaration import PROJECT, Carrier, Dialed, Relay, Transport
from pscompy.transport.interfaces import addresses
from pscompy.transport.native import Native
from pscompy.transport.python.base import Link, PythonTransport

__all__ = [
    "AUTO",
    "Carrier",
    "Dialed",
    "INF",
    "Link",
    "Native",
    "Parser",
    "PythonTransport",
    "Relay",
    "Setting",
    "Transport",
    "Var",
    "addresses",
    "choice",
    "count",
    "flag",
    "hookimpl",
    "integer",
    "nbytes",
    "priority",
    "seconds",
    "size",
    "text",
]

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Decorates a plug-in's function `pscompy_transport`, by which pscompy finds it."""
