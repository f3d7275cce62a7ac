"""The transport ib: InfiniBand and RoCE, by libibverbs."""

from __future__ import annotations

from pathlib import Path

from pscompy.plugin import Native, Transport, hookimpl
from pscompy.plugins.ib.config import VARIABLES

DEVICES = Path("/sys/class/infiniband")

native = Native(__name__)


def unavailable() -> str | None:
    """Return the reason why ib cannot be used, or None if it can be used. If this host has no RDMA
    device, neither libibverbs nor a library that libibverbs needs is loaded."""
    return native.unavailable() if DEVICES.exists() else "no RDMA device"


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("ib", 30, VARIABLES, native.ops, unavailable)
