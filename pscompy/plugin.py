"""What a transport's Python may import: the hook, the declaration, its tools.

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

import importlib
import json
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pluggy

from pscompy.config.config import (
    AUTO,
    INF,
    Parser,
    Setting,
    Var,
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
    "installed",
    "integer",
    "nbytes",
    "priority",
    "seconds",
    "size",
    "text",
]

PROJECT = "pscompy"
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks the function that implements the hook of its name."""


def installed() -> list[str]:
    """The names of all transports that there are, whether they can be used or not."""
    from pscompy.discovery.registry import load

    return [found.name for found in load()[1]]


def addresses() -> list[str]:
    """The IP addresses of this host, but for those of the loopback."""
    from pscompy.control.addresses import interfaces

    return [str(own.address) for own in interfaces() if not own.address.is_loopback]


def _available() -> str | None:
    return None


def _nothing() -> None:
    pass


class Dialed(Protocol):
    """The receiver of the outcome of an attempt to reach a place."""

    def __call__(self, sock: socket.socket | None, reason: str, final: bool = False) -> object:
        """`sock` None: nothing, for this reason. `final`: the peer is gone, so that a further
        attempt is of no use."""


class Relay(Protocol):
    """A way to peers that no address of this host leads to, for the handshake.

    The sockets that it hands over are connected, non-blocking streams; whoever
    gets one closes it. What it calls it may call on any thread.
    """

    def listen(self, accept: Callable[[socket.socket], object]) -> str:
        """Where this process can be reached through the relay: letters, digits,
        and signs but `/`, `,` and `!`. Callers are given to `accept`. May wait a
        moment for the relay to know of this process."""

    def stop(self, place: str) -> None:
        """Take no more callers in at this place."""

    def leads(self, place: str) -> bool:
        """Whether that place is rather reached through the relay than directly."""

    def dial(self, place: str, done: Dialed) -> Callable[[], object]:
        """Reach a place, and call `done`. Returns what gives the attempt up."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """A transport that a worker can open: the address of its table of
    operations, and the settings for its `open`. `close` follows when the worker
    is gone, or did not open it. Where only this transport reaches a peer, its
    `relay` carries the handshake too. `stuck` says, on any thread, what keeps
    the transport from serving anybody, or nothing; it is asked now and then,
    and logs what it says."""

    ops: int
    settings: list[Setting]
    close: Callable[[], None] = _nothing
    relay: Relay | None = None
    stuck: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True)
class Transport:
    """A transport as its plug-in declares it.

    `priority` orders it among the others (built in: loop 100, shm 90,
    portals 40, ib 30, gateway 10, tcp 2; 0: never). `variables` are those of
    PSP_<NAME>_*. A transport in C gives `ops`, which returns the address of a
    psc_transport_ops_t that lives as long as the process; one in Python gives
    `python`, its subclass of PythonTransport. Neither is used unless
    `unavailable` returned None instead of a reason. One that gives `asked` is
    left alone until PSP_<NAME> is set, or `asked` finds that the values of
    `variables` want it. One that runs `everywhere` needs no device and no
    library, so that a program is warned where it does not.
    """

    name: str
    priority: int
    variables: tuple[Var, ...] = ()
    ops: Callable[[], int] | None = None
    unavailable: Callable[[], str | None] = _available
    python: type[PythonTransport] | None = None
    asked: Callable[[Mapping[str, object]], bool] | None = None
    everywhere: bool = False

    def carry(self, settings: Sequence[Setting]) -> Carrier:
        """Make it ready for one worker. Any exception of a transport in Python
        passes through: it cannot be used, and this is why."""
        if self.python is not None:
            return self.carry_within(settings, math.inf)
        assert self.ops is not None  # the registry has checked
        return Carrier(self.ops(), list(settings))

    def carry_within(self, settings: Sequence[Setting], seconds: float) -> Carrier:
        """The same; the `open` of one in Python may take so many seconds, then
        it is a `TimeoutError`."""
        if self.python is None:
            return self.carry(settings)
        from pscompy.transport.python.pump import Pump  # loads its extension

        parsers = {var.name: var.parser for var in self.variables}
        values = {setting.name: parsers[setting.name](setting.text) for setting in settings}
        pump = Pump(self.name, self.python(), values, seconds)
        bridge = [Setting("bridge", "", pump.handle)]
        return Carrier(pump.ops, bridge, pump.close, stuck=pump.stuck)


class Native:
    """The compiled half of a plug-in: the module `_native` in its package,
    which exports `uintptr_t <transport>_transport(void)`.

    It is loaded at first use, so that declaring a transport costs nothing and
    a fabric library that does not load is a reason, not an exception.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._name = package.rpartition(".")[2]

    def ops(self) -> int:
        """The address of the transport's psc_transport_ops_t."""
        function = getattr(self.load().lib, f"{self._name}_transport")
        return int(function())

    def unavailable(self) -> str | None:
        """Why the module cannot be used, or None."""
        try:
            self.load()
        except ModuleNotFoundError as error:
            if error.name != f"{self._package}._native":
                return f"built, but it needs the missing module {error.name}"
            return f"not built: {self._why_not_built()}"
        except ImportError as error:
            return f"built, but does not load: {error}"
        return None

    def load(self) -> ModuleType:
        """The module. `ImportError`: what `unavailable` tells in words."""
        return importlib.import_module(f"{self._package}._native")

    def _why_not_built(self) -> str:
        """What the build recorded beside the package, or a general remedy."""
        package = importlib.import_module(self._package)
        record = Path(package.__path__[0]).parent / "not_built.json"
        try:
            reasons = json.loads(record.read_text())
        except FileNotFoundError:
            reasons = {}
        return str(reasons.get(self._name, "its extension is missing (pip install -e .)"))
