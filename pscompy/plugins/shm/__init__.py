"""The transport shm: shared memory between processes of one user on one node."""

from pscompy.plugin import Native, Transport, hookimpl
from pscompy.plugins.shm.config import VARIABLES

native = Native(__name__)


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("shm", 90, VARIABLES, native.ops, native.unavailable, everywhere=True)
