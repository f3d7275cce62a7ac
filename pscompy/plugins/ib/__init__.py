"""ib: InfiniBand and RoCE, by verbs."""

from __future__ import annotations

from pscompy.plugin import Native, Transport, hookimpl
from pscompy.plugins.ib.config import VARIABLES

native = Native(__name__)


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("ib", 30, VARIABLES, native.ops, native.unavailable)
