"""The ib transport: InfiniBand and RoCE, by libibverbs."""

from __future__ import annotations

from pathlib import Path

from pscompy.plugin import Native, Transport, hookimpl
from pscompy.plugins.ib.config import VARIABLES

DEVICES = Path("/sys/class/infiniband")

native = Native(__name__)


def unavailable() -> str | None:
    """Return the reason why ib cannot be used, or None if it can be used. Without a device
    libibverbs and the libraries that it needs are not loaded."""
    return native.unavailable() if DEVICES.exists() else "no RDMA device"


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("ib", 30, VARIABLES, native.ops, unavailable)
