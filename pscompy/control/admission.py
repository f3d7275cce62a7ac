"""Admission to a listening socket: how many callers may wait there that have not proved the key.

Anybody can connect. A caller costs a slot and a descriptor until it has proved the key, and is
dropped if the proof takes too long. If all slots are taken, or few descriptors are left, the
newest caller is admitted, and the oldest caller of the source that holds most slots is dropped. A
peer that has the key proves it within milliseconds, so it is not the oldest; and a source that
floods the socket loses its own callers. If few descriptors are left and no caller can be dropped,
the new peer is turned away, with a greeting that says so.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pscompy.control import descriptors
from pscompy.control.event_loop import READ, ControlThread, Timer
from pscompy.control.handshake.greeting import full_greeting

if TYPE_CHECKING:
    from pscompy.control.precon import Precon

logger = logging.getLogger(__name__)

SLOTS_MAX = 1024  # maximum number of callers of one socket that have not authenticated yet
SLOTS_SHARE = 4  # callers that have not authenticated take at most 1/4 of the descriptors
UNPROVED_SECONDS = 10.0  # seconds within which a caller must prove that it has the key
FREE_MAX = 16  # descriptors left free for connections that come up, and for the program
FREE_SHARE = 8  # at most 1/8 of the process's descriptors is left free
ACCEPT_MAX = 32  # maximum number of callers that are accepted before open precons are served again
PAUSE = 0.25  # seconds without accepting, if there is no memory or no descriptor at all
# shortest time in seconds between two log lines about peers that are turned away
REPORT_SECONDS = 10.0

Source = bytes
RELAYED = b""  # the source of all callers that come through relays

_NO_MEMORY = (errno.ENOBUFS, errno.ENOMEM)
_MAPPED = bytes(10) + b"\xff\xff"  # first 12 bytes of an IPv6 address that stands for an IPv4 one


def slots() -> int:
    """Return how many callers of one socket may wait without having proved that they have the
    key."""
    return max(1, min(SLOTS_MAX, descriptors.limit() // SLOTS_SHARE))


def to_leave() -> int:
    """Return how many file descriptors must stay free when callers are accepted."""
    return max(descriptors.CONNECTION, min(FREE_MAX, descriptors.limit() // FREE_SHARE))


def source_of(address: Any) -> Source:
    """Return the source of a caller: an IPv4 address, or the 64 bits that name an IPv6 network."""
    host = str(address[0]).partition("%")[0]
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host)
    return packed[12:] if packed.startswith(_MAPPED) else packed[:8]


class Callers:
    """Precons of callers that have not authenticated yet, by source, the oldest first."""

    def __init__(self) -> None:
        self._sources: dict[Source, dict[Precon, None]] = {}
        self._of: dict[Precon, Source] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, precon: Precon) -> bool:
        return precon in self._of

    def __iter__(self) -> Iterator[Precon]:
        return iter(list(self._of))

    def add(self, precon: Precon, source: Source) -> None:
        self._of[precon] = source
        self._sources.setdefault(source, {})[precon] = None

    def discard(self, precon: Precon) -> None:
        source = self._of.pop(precon, None)
        if source is None:
            return
        del self._sources[source][precon]
        if not self._sources[source]:
            del self._sources[source]

    def first_to_drop(self) -> Precon:
        """Return the oldest precon of the source that has the highest number of precons here."""
        largest = max(self._sources.values(), key=len)
        return next(iter(largest))


class Admission:
    """Accepts callers of a listening socket, each of which must authenticate soon."""

    def __init__(
        self,
        thread: ControlThread,
        listening: socket.socket,
        new_precon: Callable[[socket.socket], Precon],
    ) -> None:
        self._thread = thread
        self._socket: socket.socket | None = listening
        self._new_precon = new_precon
        self._callers = Callers()
        self._timers: dict[Precon, Timer] = {}
        self._slots = slots()
        self._leave = to_leave()
        # whether enough descriptors are free for all callers that _on_ready accepts now
        self._plenty = False
        self._paused = False
        self._reported = -REPORT_SECONDS  # when the log last reported that peers are refused
        thread.register(listening.fileno(), READ, self._on_ready)

    def close(self) -> None:
        """Accept no more callers, and drop those that have not proved the key."""
        sock, self._socket = self._socket, None
        if sock is not None:
            if not self._paused:
                self._thread.unregister(sock.fileno())
            sock.close()
        for precon in self._callers:
            precon.drop()

    def forget(self) -> None:
        """In the child after a fork: close the descriptor; the parent goes on to listen."""
        if self._socket is not None:
            os.close(self._socket.detach())
            self._socket = None

    def authenticated(self, precon: Precon) -> None:
        """Free the slot of a caller that has proved the key, or whose precon is closed."""
        self._callers.discard(precon)
        timer = self._timers.pop(precon, None)
        if timer is not None:
            timer.cancel()

    def admit(self, sock: socket.socket) -> None:
        """Take a connected socket that comes from a relay instead of the listening socket."""
        self._enter(sock, RELAYED)

    # ---- accepting ----

    def _on_ready(self, _events: int) -> None:
        """Accept some callers, before open precons are served again. The number of free descriptors
        is looked up once for all of them."""
        self._plenty = descriptors.left(self._leave + ACCEPT_MAX)
        for _ in range(ACCEPT_MAX):
            if self._socket is None or not self._accept(self._socket):
                break
        self._plenty = False

    def _accept(self, listening: socket.socket) -> bool:
        """Accept one caller. Returns False if there is none, or none can be accepted now."""
        try:
            sock, address = listening.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            return self._on_accept_error(listening, error)
        sock.setblocking(False)  # all other options are inherited from the listening socket
        self._enter(sock, source_of(address))
        return True

    def _enter(self, sock: socket.socket, source: Source) -> None:
        if self._socket is None:
            sock.close()
            return
        while len(self._callers) >= self._slots:
            self._drop_one()
        while self._callers and not self._enough_left():
            self._drop_one()
        if self._callers or self._enough_left():
            self._add(sock, source)
        else:
            self._turn_away(sock)

    def _enough_left(self) -> bool:
        return self._plenty or descriptors.left(self._leave)

    def _add(self, sock: socket.socket, source: Source) -> None:
        try:
            precon = self._new_precon(sock)
        except BaseException:
            sock.close()
            raise
        if precon.closed:
            return
        precon.on_close.append(self.authenticated)
        self._callers.add(precon, source)
        self._timers[precon] = self._thread.later(UNPROVED_SECONDS, self._expire, precon)

    # ---- too many callers, or too few descriptors ----

    def _drop_one(self) -> None:
        precon = self._callers.first_to_drop()
        logger.debug("%s is dropped for a newer caller", precon.peer_address)
        self.authenticated(precon)
        precon.drop()

    def _expire(self, precon: Precon) -> None:
        if precon in self._callers:
            logger.info("%s has not proved the key in time", precon.peer_address)
            self.authenticated(precon)
            precon.drop()

    def _turn_away(self, sock: socket.socket) -> None:
        """Send a greeting that says that no descriptor is left, and close. Data that has arrived
        is read first: closing a socket with unread data sends a reset, which may overtake the
        greeting."""
        self._report()
        with contextlib.suppress(OSError):
            sock.setblocking(False)
            sock.send(full_greeting())
            sock.shutdown(socket.SHUT_WR)
            sock.recv(4096)
        sock.close()

    def _on_accept_error(self, listening: socket.socket, error: OSError) -> bool:
        """If no descriptor is left, drop a caller that waits, or turn the new one away by means of
        the spare descriptor (see descriptors.py). Returns whether to accept the next caller."""
        if not descriptors.exhausted(error):
            if error.errno in _NO_MEMORY:
                logger.error("cannot accept a connection: %s", error.strerror)
                self._pause()
            return False
        if self._callers:
            self._drop_one()
            return True
        self._report()
        with self._thread.spare.lent():
            try:
                sock, _ = listening.accept()
            except OSError:
                self._pause()  # another thread has taken the freed descriptor
                return False
            self._turn_away(sock)
        return True

    def _report(self) -> None:
        if time.monotonic() - self._reported >= REPORT_SECONDS:
            self._reported = time.monotonic()
            logger.error("peers are turned away: %s", descriptors.remedy())

    def _pause(self) -> None:
        if self._socket is not None and not self._paused:
            self._paused = True
            self._thread.unregister(self._socket.fileno())
            self._thread.later(PAUSE, self._resume)

    def _resume(self) -> None:
        if self._socket is not None and self._paused:
            self._paused = False
            self._thread.register(self._socket.fileno(), READ, self._on_ready)
