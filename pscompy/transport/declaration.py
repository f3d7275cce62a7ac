"""Declarations of a plug-in: its Transport, and the Carrier, a transport prepared for one
worker."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from pscompy.config.config import Setting, Var
from pscompy.transport.python.base import PythonTransport

PROJECT = "pscompy"  # the name of the plug-in hook's markers, and of the entry-point group


def _available() -> str | None:
    return None


def _nothing() -> None:
    pass


class Dialed(Protocol):
    """A function that receives the outcome of `Relay.dial`, an attempt to reach a place."""

    def __call__(self, sock: socket.socket | None, reason: str, final: bool = False) -> object:
        """`sock` is the connected socket, or None if the attempt failed for `reason`. If `final`,
        the peer has ended, and a further attempt is useless."""


class Relay(Protocol):
    """Carries the handshake to peers that cannot be reached from an address of this host.

    The sockets that a relay passes on are connected, non-blocking streams; their receiver closes
    them. A relay may call `accept` and `done` on any thread.
    """

    def listen(self, accept: Callable[[socket.socket], object]) -> str:
        """Start to pass callers to `accept`. Returns the place where this process can be reached
        through the relay: letters, digits, and signs except `/`, `,` and `!`. May block briefly
        until the relay has registered this process."""

    def stop(self, place: str) -> None:
        """Stop accepting callers at this place."""

    def leads(self, place: str) -> bool:
        """Return True if the place should be reached through the relay and not directly. Not asked
        if the peer's address has no direct place: then `dial` gives the reason if it cannot be
        reached."""

    def dial(self, place: str, done: Dialed) -> Callable[[], object]:
        """Connect to a place that `listen` of the peer has returned, then call `done`. Returns a
        function that cancels the attempt."""


class Carrier(NamedTuple):
    """A transport that a worker can open.

    `ops` is the address of its psc_transport_ops_t, `settings` are passed to its `open`.
    `close` is called when the worker has ended, or could not open the transport. `relay` carries
    the handshake for peers that only this transport can reach. `stuck` returns the reason why the
    transport makes no progress, or an empty text; it is called periodically, on any thread, and
    logs the reason.
    """

    ops: int
    settings: Sequence[Setting]
    close: Callable[[], None] = _nothing
    relay: Relay | None = None
    stuck: Callable[[], str] | None = None


class Transport(NamedTuple):
    """A transport as its plug-in declares it.

    `priority` orders it among the others (built in: loop 100, shm 90, portals 40, ib 30, gateway
    10, tcp 2; 0: never). `variables` are the environment variables PSP_<NAME>_*. A transport in C
    gives `ops`, which returns the address of a psc_transport_ops_t that lives as long as the
    process; a transport in Python gives `python`, its subclass of PythonTransport. Neither is used
    if `unavailable` returns a reason. A transport with `asked` is used only if PSP_<NAME> is set,
    or if `asked` returns True for the values of `variables`. A transport that runs `everywhere`
    needs no device and no library; a program is warned if it cannot be used.
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
        """Prepare the transport for one worker. The text of an exception is the reason why the
        transport cannot be used."""
        if self.python is not None:
            return self.carry_within(settings, math.inf)
        assert self.ops is not None  # the validation of the declaration has checked this
        return Carrier(self.ops(), settings)

    def carry_for(self, settings: Sequence[Setting], rank: int) -> Carrier:
        """Like `carry`, for the session of a rank of a World; `rank` is -1 for another session."""
        return self.carry(settings)

    def carry_within(self, settings: Sequence[Setting], seconds: float, rank: int = -1) -> Carrier:
        """Like `carry_for`; raises `TimeoutError` if the `open` of a transport in Python takes
        longer than `seconds`."""
        if self.python is None:
            return self.carry_for(settings, rank)
        # imported only here: it loads the compiled extension
        from pscompy.transport.python.pump import Pump

        parsers = {var.name: var.parser for var in self.variables}
        values = {setting.name: parsers[setting.name](setting.text) for setting in settings}
        pump = Pump(self.name, self.python, values, seconds)
        bridge = [Setting("bridge", "", pump.handle)]
        return Carrier(pump.ops, bridge, pump.close, stuck=pump.stuck)
