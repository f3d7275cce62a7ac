"""Reaching a peer's address: its places one after the other, each for a bounded time."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import threading
from collections.abc import Callable

from pscompy.control.network import Address, Place
from pscompy.control.precon import LinkOptions
from pscompy.control.thread import WRITE, ControlThread, Timer
from pscompy.plugin import Relay


class Dialer:
    """One attempt to reach an address: its places one after the other, each for a bounded time.

    `done` gets the connected socket, or the reason why no place could be reached.
    """

    def __init__(
        self,
        thread: ControlThread,
        address: Address,
        options: LinkOptions,
        done: Callable[[socket.socket | None, str], object],
    ) -> None:
        self._thread = thread
        self._options = options
        self._done = done
        self._sock: socket.socket | None = None
        self._timer: Timer | None = None
        self._reasons: list[str] = []
        self._cancelled = False
        self._targets: list[tuple[int, tuple[str, int]]] = []
        self.stalled = False  # nobody answered at all at one of the places
        self.final = False
        _resolve(thread, address.places, self._on_resolved)

    def cancel(self) -> None:
        self._cancelled = True
        self._let_go(close=True)

    def forget(self) -> None:
        """After a fork, in the child."""
        if self._sock is not None:
            os.close(self._sock.detach())
            self._sock = None

    def _on_resolved(self, targets: list[tuple[int, tuple[str, int]]], reasons: list[str]) -> None:
        self._targets, self._reasons = targets, reasons
        self._next()

    def _next(self) -> None:
        if self._cancelled:
            return
        if not self._targets:
            self._done(None, "; ".join(self._reasons))
            return
        family, where = self._targets[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._options.apply(sock)
            sock.connect(where)
        except BlockingIOError:
            pass
        except OSError as error:
            sock.close()
            self._fell(error)
            return
        self._sock = sock
        self._thread.register(sock.fileno(), WRITE, self._on_ready)
        self._timer = self._thread.later(self._options.stall_seconds, self._on_stall)

    def _on_ready(self, _events: int) -> None:
        assert self._sock is not None
        error = _connect_error(self._sock)
        sock = self._let_go(close=error is not None)
        if error is not None:
            self._fell(error)
        else:
            self._done(sock, "")

    def _on_stall(self) -> None:
        self.stalled = True
        self._let_go(close=True)
        self._fell(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def _fell(self, error: OSError) -> None:
        _, where = self._targets.pop(0)
        self._reasons.append(f"{Place(*where)}: {error.strerror or error}")
        self._next()

    def _let_go(self, close: bool) -> socket.socket | None:
        sock, self._sock = self._sock, None
        if self._timer is not None:
            self._timer.cancel()
        if sock is not None:
            self._thread.unregister(sock.fileno())
            if close:
                sock.close()
        return sock


class Detoured:
    """The same, through the relay of a transport."""

    stalled = False

    def __init__(
        self,
        thread: ControlThread,
        relay: Relay,
        place: str,
        done: Callable[[socket.socket | None, str], object],
    ) -> None:
        self._thread = thread
        self._done = done
        self._cancelled = False
        self.final = False  # the relay knows that the peer is gone
        self._give_up = relay.dial(place, self._tell)

    def cancel(self) -> None:
        self._cancelled = True
        self._give_up()

    def forget(self) -> None:
        """After a fork, in the child: nothing is ours yet."""

    def _tell(self, sock: socket.socket | None, reason: str, final: bool = False) -> None:
        """On any thread."""
        self._thread.call(self._on_dialed, sock, reason, final)

    def _on_dialed(self, sock: socket.socket | None, reason: str, final: bool) -> None:
        self.final = final
        if not self._cancelled:
            self._done(sock, reason)
        elif sock is not None:
            sock.close()


def _connect_error(sock: socket.socket) -> OSError | None:
    """Why the socket is not connected. TCP may connect one with itself where nobody listens at an
    ephemeral port; and one that was reset in this very moment has no peer."""
    number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    try:
        if not number and sock.getsockname() == sock.getpeername():
            number = errno.ECONNREFUSED
    except OSError:
        number = errno.ECONNRESET
    return OSError(number, os.strerror(number)) if number else None


Targets = list[tuple[int, tuple[str, int]]]


def _resolve(
    thread: ControlThread,
    places: tuple[Place, ...],
    done: Callable[[Targets, list[str]], object],
) -> None:
    """Numeric places at once; names on a thread of their own, since resolving may block long."""
    targets, reasons = _look_up(places, socket.AI_NUMERICHOST)
    if not reasons:
        thread.call(done, targets, reasons)
        return

    def look_up() -> None:
        thread.call(done, *_look_up(places, 0))

    threading.Thread(target=look_up, name="pscompy-resolve", daemon=True).start()


def _look_up(places: tuple[Place, ...], flags: int) -> tuple[Targets, list[str]]:
    targets: Targets = []
    reasons = []
    for place in places:
        try:
            host = place.host.encode("ascii") if place.host.isascii() else place.host
            found = socket.getaddrinfo(host, place.port, type=socket.SOCK_STREAM, flags=flags)
        except (OSError, UnicodeError) as error:
            reasons.append(f"{place}: {getattr(error, 'strerror', None) or error}")
            continue
        pairs = ((int(family), where) for family, _, _, _, where in found)
        targets += [(family, (str(where[0]), int(where[1]))) for family, where in pairs]
    return list(dict.fromkeys(targets)), reasons


def _jitter() -> float:
    """At least 0, below 1; without `random`, which is slow to load."""
    return os.urandom(1)[0] / 256


class Backoff:
    """How long to wait before the next attempt: 10 ms, doubling up to 1 s, with jitter."""

    def __init__(self, retries: int, jitter: Callable[[], float] = _jitter) -> None:
        self._left = retries
        self._jitter = jitter
        self._delays = itertools.chain((0.01 * 2.0**n for n in range(7)), itertools.repeat(1.0))

    def next(self) -> float | None:
        """Seconds; None: no attempt is left."""
        if self._left <= 0:
            return None
        self._left -= 1
        return next(self._delays) * (0.5 + self._jitter() / 2)
