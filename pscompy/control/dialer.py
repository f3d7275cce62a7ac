"""Dialing a peer's address: all its locations side by side, as happy eyeballs do (RFC 8305).

An address names every location at which the listener may be reached. Some may lead nowhere from
this host, or to another process: a bridge, for example, has the same address on many hosts. So the
next location is tried when one has failed, and also when it has not connected for a moment. The
caller decides which location is the right one, namely where the peer answers, and then calls
`cancel`.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from pscompy.control import descriptors
from pscompy.control.addresses import Location, SocketAddress, numeric_host
from pscompy.control.event_loop import WRITE, ControlThread, Timer
from pscompy.control.handshake.frames import Kind
from pscompy.control.precon_options import PreconOptions
from pscompy.errors import PscomError
from pscompy.transport.declaration import Relay

ATTEMPT_DELAY = 0.25  # seconds for a location to connect before the next one is tried too

Target = tuple[int, SocketAddress]  # address family, and the address of a location
Targets = list[Target]
Reached = Callable[[socket.socket, "Target | None"], object]
"""Gets each connected socket, with its location."""
Ended = Callable[[str], object]
"""Gets the reasons when no location is left to try; a socket that has connected may still
succeed."""


class Dialer:
    """One attempt to reach an address. It goes on to further locations until it is cancelled, more
    slowly once one has connected.

    `over`: no location is being tried, and none is left to try. `stalled`: a location did not
    answer at all. `exhausted`: this process has no descriptor left, so that another attempt would
    fail too.
    `final`: the peer is known to be gone."""

    def __init__(
        self,
        thread: ControlThread,
        locations: tuple[Location, ...] | Targets,
        options: PreconOptions,
        reached: Reached,
        ended: Ended,
    ) -> None:
        self._thread = thread
        self._options = options
        self._reached = reached
        self._ended = ended
        self._delay = ATTEMPT_DELAY
        self._timer: Timer | None = None
        self._pending: dict[socket.socket, tuple[Target, Timer]] = {}
        self._reasons: list[str] = []
        self._cancelled = False
        self._targets: Targets = []
        self.over = False
        self.stalled = False
        self.final = False
        self.exhausted = False
        _resolve(thread, locations, self._on_resolved)

    def cancel(self) -> Targets:
        """End the attempt; returns the locations that have neither failed nor connected."""
        self._cancelled = True
        self._stop_waiting()
        rest = [self._release(sock, close=True) for sock in list(self._pending)]
        return rest + self._targets

    def try_next(self) -> None:
        """Try the next location now, because the peer has not answered on a connected socket."""
        if self._targets:
            self._next()

    def forget(self) -> None:
        """In the child after a fork: close the descriptors."""
        for sock in self._pending:
            os.close(sock.detach())
        self._pending.clear()

    def _on_resolved(self, targets: Targets, reasons: list[str]) -> None:
        self._targets, self._reasons = targets, reasons
        self._next()

    def _next(self) -> None:
        """Try the next location, and the one after it a moment later."""
        self._stop_waiting()
        if self._cancelled:
            return
        while self._targets and not self._connect(self._targets.pop(0)):
            pass
        if self._targets:
            self._timer = self._thread.later(self._delay, self._next)
        elif not self._pending:
            self._give_up()

    def _give_up(self) -> None:
        """Report that no location is left to try. A resolver that lacks descriptors reports that by
        various errors, so the free descriptors are checked here."""
        self.over = True
        self.exhausted = not descriptors.left(1)
        self._ended(descriptors.remedy() if self.exhausted else "; ".join(self._reasons))

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _connect(self, target: Target) -> bool:
        """Begin to connect. Returns False if that has failed at once."""
        family, where = target
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._note(target, error)
            return False
        try:
            self._options.apply(sock)
            sock.connect(where)
        except BlockingIOError:
            pass
        except OSError as error:
            sock.close()
            self._note(target, error)
            return False
        self._thread.register(sock.fileno(), WRITE, lambda _: self._on_ready(sock))
        stall = self._thread.later(self._options.stall_seconds, self._on_stall, sock)
        self._pending[sock] = target, stall
        return True

    def _on_ready(self, sock: socket.socket) -> None:
        error = _connect_error(sock)
        target = self._release(sock, close=error is not None)
        if error is not None:
            self._note(target, error)
            self._next()
            return
        self._delay = self._options.stall_seconds
        self.over = not (self._targets or self._pending)
        if self._targets:
            self._stop_waiting()
            self._timer = self._thread.later(self._delay, self._next)
        self._reached(sock, target)

    def _on_stall(self, sock: socket.socket) -> None:
        self.stalled = True
        target = self._release(sock, close=True)
        self._note(target, TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
        self._next()

    def _note(self, target: Target, error: OSError) -> None:
        _, where = target
        location = Location(numeric_host(where), where[1])
        self._reasons.append(f"{location}: {descriptors.why(error)}")

    def _release(self, sock: socket.socket, close: bool) -> Target:
        target, timer = self._pending.pop(sock)
        timer.cancel()
        self._thread.unregister(sock.fileno())
        if close:
            sock.close()
        return target


class Detoured:
    """An attempt like `Dialer`, through the relay of a transport."""

    stalled = exhausted = False

    def __init__(
        self,
        thread: ControlThread,
        relay: Relay,
        location: str,
        reached: Reached,
        ended: Ended,
    ) -> None:
        self._thread = thread
        self._reached = reached
        self._ended = ended
        self._cancelled = False
        self.over = False
        self.final = False
        self._cancel = relay.dial(location, self._on_outcome)

    def cancel(self) -> Targets:
        self._cancelled = True
        self._cancel()
        return []

    def try_next(self) -> None:
        """Does nothing: a relay has one location only."""

    def forget(self) -> None:
        """In the child after a fork: closes nothing, because there is no descriptor yet."""

    def _on_outcome(self, sock: socket.socket | None, reason: str, final: bool = False) -> None:
        """Pass the relay's outcome to the control thread. Called on any thread."""
        self._thread.call(self._on_dialed, sock, reason, final)

    def _on_dialed(self, sock: socket.socket | None, reason: str, final: bool) -> None:
        self.over, self.final = True, final
        if self._cancelled:
            if sock is not None:
                sock.close()
        elif sock is None:
            self._ended(reason)
        else:
            self._reached(sock, None)


def _connect_error(sock: socket.socket) -> OSError | None:
    """Return why the socket is not connected, or None. If no process listens at an ephemeral port,
    TCP may connect a socket with itself; a socket that was reset meanwhile has no peer."""
    number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    try:
        if not number and sock.getsockname() == sock.getpeername():
            number = errno.ECONNREFUSED
    except OSError:
        number = errno.ECONNRESET
    return OSError(number, os.strerror(number)) if number else None


def _resolve(
    thread: ControlThread,
    locations: tuple[Location, ...] | Targets,
    done: Callable[[Targets, list[str]], object],
) -> None:
    """Resolve numeric locations at once, and names on another thread, because that may block."""
    if isinstance(locations, list):
        thread.call(done, list(locations), [])
        return
    targets, reasons = _look_up(locations, socket.AI_NUMERICHOST)
    if not reasons:
        thread.call(done, targets, reasons)
        return

    def look_up() -> None:
        thread.call(done, *_look_up(locations, 0))

    threading.Thread(target=look_up, name="pscompy-resolve", daemon=True).start()


def _look_up(locations: tuple[Location, ...], flags: int) -> tuple[Targets, list[str]]:
    targets: Targets = []
    reasons = []
    for location in locations:
        try:
            host = location.host.encode("ascii") if location.host.isascii() else location.host
            found = socket.getaddrinfo(host, location.port, type=socket.SOCK_STREAM, flags=flags)
        except (OSError, UnicodeError) as error:
            reasons.append(f"{location}: {getattr(error, 'strerror', None) or error}")
            continue
        targets += [(int(family), where) for family, _, _, _, where in found]
    return list(dict.fromkeys(targets)), reasons


def _jitter() -> float:
    """Return a random number of at least 0, below 1."""
    return os.urandom(1)[0] / 256


class Backoff:
    """The pauses between attempts: 10 ms, doubling up to 1 s, with jitter."""

    def __init__(self, retries: int, jitter: Callable[[], float] = _jitter) -> None:
        self._left = retries
        self._jitter = jitter
        self._delays = itertools.chain((0.01 * 2.0**n for n in range(7)), itertools.repeat(1.0))

    def next(self) -> float | None:
        """Return the seconds to wait, or None if no attempt is left."""
        if self._left <= 0:
            return None
        self._left -= 1
        return next(self._delays) * (0.5 + self._jitter() / 2)


class Rival(Protocol):
    """A precon on which the peer has not answered yet: a negotiation."""

    def break_off(self) -> None:
        """End the precon as if this process had died."""


Refusal = tuple[PscomError, bool]
"""The error by which a precon failed, and whether another attempt may succeed."""


class Attempt:
    """All attempts to reach a peer, from the connection's first use until it is up or has failed.

    A round tries all locations of the peer's address. Each precon that connects is a rival until
    the peer answers on one of them: that one is used. If another process answers there, the round
    goes on with the locations that are left.
    """

    def __init__(self, kind: Kind, backoff: Backoff) -> None:
        self.kind = kind
        self.backoff = backoff
        self.stalled = 0  # rounds in which a location did not answer at all
        self.dialer: Dialer | Detoured | None = None
        self.timer: Timer | None = None  # timer of the next round
        # precons that are connected, and on which the peer has not answered yet
        self.rivals: dict[Rival, Target | None] = {}
        # locations to try next if the process that answered is not the peer
        self.rest: Targets = []
        self.refused: Refusal | None = None  # the first refusal of this round
        self.closed: list[str] = []  # why detours of the address cannot be taken, in this round
        self.last_error: PscomError | None = None  # why the round before failed

    @property
    def dialing(self) -> bool:
        """Whether a precon is being made now; False in the pause before the next round."""
        return self.dialer is not None or bool(self.rivals)

    def settle(self, winner: Rival | None = None) -> None:
        """End the round: keep the winner's precon, and break off all others."""
        rest = self.dialer.cancel() if self.dialer is not None else []
        self.dialer = None
        rivals, self.rivals = self.rivals, {}
        for rival, target in rivals.items():
            if rival is not winner:
                rival.break_off()
                rest += [target] if target is not None else []
        self.rest = rest

    def cancel(self) -> None:
        """End the round, and begin no other."""
        self.settle()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
