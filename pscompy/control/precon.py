"""Precon links over TCP: non-blocking sockets that carry a `Handshake`.

A `Link` moves bytes and hands the machine's events to its owner; it decides nothing. The `Door`
(door.py) takes links in, the `Dialer` (dialer.py) makes them.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pscompy.config.config import Config
from pscompy.control.addresses import Place
from pscompy.control.event_loop import READ, WRITE, ControlThread, Timer
from pscompy.control.handshake.events import Ended, HandshakeEvent
from pscompy.control.handshake.handshake import Handshake
from pscompy.errors import PscomError

LINGER_SECONDS = 2.0  # for the last bytes of a link to leave
CHUNK = 64 * 1024

# Ways in which the kernel tells that the other host, or the way to it, does not answer.
OUTAGES = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
KEEPALIVE_MAX = 32767  # seconds, of the kernel


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """PSP_PRECON_TCP_*, and PSP_GUARD_TIMEOUT."""

    sndbuf: int
    rcvbuf: int
    nodelay: bool
    stall_seconds: float
    stalled_max: int
    silence_seconds: float  # of a link before its peer counts as lost

    @classmethod
    def of(cls, config: Config) -> LinkOptions:
        return cls(
            sndbuf=config["PRECON_TCP_SO_SNDBUF"],
            rcvbuf=config["PRECON_TCP_SO_RCVBUF"],
            nodelay=config["PRECON_TCP_NODELAY"],
            stall_seconds=config["PRECON_TCP_RECONNECT_TIMEOUT"] / 1000,
            stalled_max=max(1, config["PRECON_TCP_CONNECT_STALLED_MAX"]),
            silence_seconds=config["GUARD_TIMEOUT"],
        )

    def apply(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        for level, name, value in (
            (socket.SOL_SOCKET, socket.SO_SNDBUF, self.sndbuf),
            (socket.SOL_SOCKET, socket.SO_RCVBUF, self.rcvbuf),
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, int(self.nodelay)),
            *self._keepalive(),
        ):
            sock.setsockopt(level, name, value)

    def _keepalive(self) -> Iterator[tuple[int, int, int]]:
        """The kernel asks an idle peer after a third of the time, then every sixth of it; the link
        ends at the first question after the whole."""
        if not math.isfinite(self.silence_seconds):
            return
        idle, interval = (
            min(max(1, round(self.silence_seconds / part)), KEEPALIVE_MAX) for part in (3, 6)
        )
        yield socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
        yield socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle
        yield socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval
        milliseconds = min(max(1, round(self.silence_seconds * 1000)), 2**31 - 1)
        yield socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds


class LinkOwner(Protocol):
    """Who is told what happens on a link; called on the control thread."""

    def on_link_event(self, link: Link, event: HandshakeEvent) -> None: ...

    def on_link_error(self, link: Link, error: PscomError) -> None:
        """The peer broke the rules, or may not talk to us. The link is closed already."""


class _Nobody:
    """The owner of a link that is over."""

    def on_link_event(self, link: Link, event: HandshakeEvent) -> None:
        pass

    def on_link_error(self, link: Link, error: PscomError) -> None:
        pass


_NOBODY = _Nobody()


class Link:
    """A connected TCP socket with its handshake."""

    def __init__(
        self,
        thread: ControlThread,
        sock: socket.socket,
        machine: Handshake,
        owner: LinkOwner,
    ) -> None:
        self.machine = machine
        self.owner: LinkOwner = owner
        self.since = time.monotonic()
        self.peer_address = _peer_address(sock)
        self._thread = thread
        self._sock: socket.socket | None = sock
        self._out = bytearray()
        self._writing = False
        self._leaving = False
        self.outage = ""  # why there is no way to the peer (any more), if that ended the link
        self.on_answer: Callable[[], object] | None = None  # called once, at the first bytes
        self.on_close: list[Callable[[Link], object]] = []
        thread.register(sock.fileno(), READ, self._on_ready)
        self.flush()

    @property
    def closed(self) -> bool:
        return self._sock is None or self._leaving

    def flush(self) -> None:
        """Send what the machine has to say; the rest follows when the socket takes it."""
        self._out += self.machine.output()
        if self._sock is None:
            return
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # reading tells the end
        self._watch_writing(bool(self._out))
        if self._leaving and not self._out:
            self.drop()

    def close(self) -> None:
        """Let the last bytes leave, for a bounded time, then close; no event comes any more."""
        if self._leaving or self._sock is None:
            return
        self._leaving = True
        self.flush()
        if self._sock is not None:
            self._thread.later(LINGER_SECONDS, self.drop)

    def drop(self) -> None:
        """Close at once."""
        sock, self._sock = self._sock, None
        if sock is None:
            return
        self._thread.unregister(sock.fileno())
        sock.close()
        for told in self.on_close:
            told(self)

    def later(self, seconds: float, function: Callable[[], object]) -> Timer:
        """Have the thread that serves this link call something then."""
        return self._thread.later(seconds, function)

    def disown(self) -> None:
        """It is closed, and the owner has been told all."""
        self.owner = _NOBODY
        self.on_answer = None
        self.on_close.clear()

    def forget(self) -> None:
        """After a fork, in the child: let go of the descriptor; the parent's stays as it is."""
        if self._sock is not None:
            os.close(self._sock.detach())
            self._sock = None

    def _watch_writing(self, wanted: bool) -> None:
        if wanted != self._writing and self._sock is not None:
            self._writing = wanted
            events = READ | WRITE if wanted else READ
            self._thread.modify(self._sock.fileno(), events, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self.flush()
        if events & READ:
            self._read()

    def _read(self) -> None:
        if self._sock is None:
            return
        try:
            data = self._sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            data = b""
            if error.errno in OUTAGES:
                self.outage = error.strerror or str(error)
        if self._leaving:
            if not data:
                self.drop()
            return
        told, self.on_answer = self.on_answer, None
        if told is not None and data:
            told()
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            events = self.machine.receive(data)
        except PscomError as error:
            self.close()
            self.owner.on_link_error(self, error)
            return
        self.deliver(events)

    def deliver(self, events: list[HandshakeEvent]) -> None:
        """Send what the machine has to say, and tell the owner what has happened."""
        self.flush()
        for event in events:
            if isinstance(event, Ended):
                self.drop()
            self.owner.on_link_event(self, event)
        self.flush()


def _peer_address(sock: socket.socket) -> str:
    try:
        host, port = sock.getpeername()[:2]
    except (OSError, ValueError):  # gone already, or a relay's
        return "?"
    return str(Place(str(host).removeprefix("::ffff:"), int(port)))
