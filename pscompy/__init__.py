"""Message passing for Python over many kinds of network, chosen at run time.

    import pscompy

    with pscompy.World() as world:
        world.send(b"hello", dest=(world.rank + 1) % world.size)
        print(world.recv())

Names are loaded at their first use, so that importing pscompy costs nothing.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

ANY_TAG: Final = -1
ANY_SOURCE: Final = -0x80000000  # far from -1 and other ranks that a wrong calculation may give

_MODULES = {
    "api.session": ("Session", "MemoryRegion"),
    "world.communicator": ("Communicator",),
    "world.reductions": ("Op",),
    "world.world": ("World",),
    "api.listener": ("Socket",),
    "api.connection": ("Connection", "ConnectionState"),
    "api.request": ("PersistentRequest", "Request", "Status", "wait_all", "wait_any"),
    "config.config": ("ConfigWarning", "TransportWarning"),
    "parcel.action": ("action", "current_action"),
    "parcel.executor": ("Executor",),
    "parcel.future": ("Future",),
    "errors": (
        "PscomError",
        "ConfigError",
        "ConnectError",
        "AuthError",
        "NameInUse",
        "VersionMismatch",
        "ProtocolError",
        "PeerLost",
        "Closed",
        "OutOfDescriptors",
        "TransportError",
        "Unsupported",
        "Truncated",
        "Mismatch",
        "OutOfBounds",
        "NoMemory",
        "Timeout",
        "Cancelled",
        "ParcelError",
        "RemoteError",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["ANY_SOURCE", "ANY_TAG", "__version__", "get_include", *_HOME]

if TYPE_CHECKING:
    from pscompy.api.connection import Connection as Connection
    from pscompy.api.connection import ConnectionState as ConnectionState
    from pscompy.api.listener import Socket as Socket
    from pscompy.api.request import PersistentRequest as PersistentRequest
    from pscompy.api.request import Request as Request
    from pscompy.api.request import Status as Status
    from pscompy.api.request import wait_all as wait_all
    from pscompy.api.request import wait_any as wait_any
    from pscompy.api.session import MemoryRegion as MemoryRegion
    from pscompy.api.session import Session as Session
    from pscompy.config.config import ConfigWarning as ConfigWarning
    from pscompy.config.config import TransportWarning as TransportWarning
    from pscompy.errors import AuthError as AuthError
    from pscompy.errors import Cancelled as Cancelled
    from pscompy.errors import Closed as Closed
    from pscompy.errors import ConfigError as ConfigError
    from pscompy.errors import ConnectError as ConnectError
    from pscompy.errors import Mismatch as Mismatch
    from pscompy.errors import NameInUse as NameInUse
    from pscompy.errors import NoMemory as NoMemory
    from pscompy.errors import OutOfBounds as OutOfBounds
    from pscompy.errors import OutOfDescriptors as OutOfDescriptors
    from pscompy.errors import ParcelError as ParcelError
    from pscompy.errors import PeerLost as PeerLost
    from pscompy.errors import ProtocolError as ProtocolError
    from pscompy.errors import PscomError as PscomError
    from pscompy.errors import RemoteError as RemoteError
    from pscompy.errors import Timeout as Timeout
    from pscompy.errors import TransportError as TransportError
    from pscompy.errors import Truncated as Truncated
    from pscompy.errors import Unsupported as Unsupported
    from pscompy.errors import VersionMismatch as VersionMismatch
    from pscompy.parcel.action import action as action
    from pscompy.parcel.action import current_action as current_action
    from pscompy.parcel.executor import Executor as Executor
    from pscompy.parcel.future import Future as Future
    from pscompy.world.communicator import Communicator as Communicator
    from pscompy.world.reductions import Op as Op
    from pscompy.world.world import World as World


def get_include() -> str:
    """Return the folder that a C compiler needs as -I for `#include
    <pscompy/transport/transport.h>`."""
    return str(Path(__file__).absolute().parent.parent)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
