"""Precons over TCP: non-blocking sockets that carry a `Handshake`.

A `Precon` moves bytes and delivers the handshake's events to its owner; it decides nothing.
admission.py accepts precons, dialer.py makes them.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Protocol

from pscompy.control.addresses import Location
from pscompy.control.event_loop import READ, WRITE, ControlThread, Timer
from pscompy.control.handshake.events import Ended, HandshakeEvent
from pscompy.control.handshake.handshake import Handshake
from pscompy.errors import ConnectError, PscomError

logger = logging.getLogger(__name__)

LINGER_SECONDS = 2.0  # seconds to send the last bytes of a precon
CHUNK = 64 * 1024

# Errors of the kernel that mean that the peer's host, or the network to it, does not answer.
OUTAGES = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)


class PreconOwner(Protocol):
    """Receives the events of a precon, on the control thread."""

    def on_precon_event(self, precon: Precon, event: HandshakeEvent) -> None: ...

    def on_precon_error(self, precon: Precon, error: PscomError) -> None:
        """The peer broke the protocol, or has another key. The precon is closed already."""


class _Nobody:
    """The owner of a precon that has ended; it ignores all events."""

    def on_precon_event(self, precon: Precon, event: HandshakeEvent) -> None:
        pass

    def on_precon_error(self, precon: Precon, error: PscomError) -> None:
        pass


_NOBODY = _Nobody()


class Precon:
    """A connected TCP socket with its handshake."""

    def __init__(
        self,
        thread: ControlThread,
        sock: socket.socket,
        machine: Handshake,
        owner: PreconOwner,
    ) -> None:
        self.machine = machine
        self.owner: PreconOwner = owner
        self.peer_address = _peer_address(sock)
        self._thread = thread
        self._sock: socket.socket | None = sock
        self._out = bytearray()
        self._writing = False
        self._leaving = False
        self.outage = ""  # the error of the network, if that ended the precon
        # called once, when the first bytes arrive
        self.on_answer: Callable[[], object] | None = None
        self.on_close: list[Callable[[Precon], object]] = []
        thread.register(sock.fileno(), READ, self._on_ready)
        self.flush()

    @property
    def closed(self) -> bool:
        return self._sock is None or self._leaving

    def flush(self) -> None:
        """Send the handshake's output; the rest follows when the socket is writable."""
        self._out += self.machine.output()
        if self._sock is None:
            return
        if self._out:
            self._send(self._sock)
        if self._leaving and not self._out:
            self.drop()

    def _send(self, sock: socket.socket) -> None:
        try:
            while self._out:
                del self._out[: sock.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # the next read returns the error
        self._watch_writing(sock, bool(self._out))

    def close(self) -> None:
        """Send the last bytes for LINGER_SECONDS at most, then close. No event follows."""
        if self._leaving or self._sock is None:
            return
        self._leaving = True
        self.flush()
        if self._sock is not None:
            self._thread.later(LINGER_SECONDS, self.drop)

    def drop(self) -> None:
        """Close the socket at once, even if the last bytes are not sent."""
        sock, self._sock = self._sock, None
        if sock is None:
            return
        self._thread.unregister(sock.fileno())
        sock.close()
        for on_close in self.on_close:
            on_close(self)

    def later(self, seconds: float, function: Callable[[], object]) -> Timer:
        """Call `function` later, on the control thread."""
        return self._thread.later(seconds, function)

    def disown(self) -> None:
        """Drop all references to the owner, which has received its last event."""
        self.owner = _NOBODY
        self.on_answer = None
        self.on_close.clear()

    def forget(self) -> None:
        """In the child after a fork: close the descriptor; the parent's precon goes on."""
        if self._sock is not None:
            os.close(self._sock.detach())
            self._sock = None

    def _watch_writing(self, sock: socket.socket, wanted: bool) -> None:
        if wanted != self._writing:
            self._writing = wanted
            events = READ | WRITE if wanted else READ
            self._thread.modify(sock.fileno(), events, self._on_ready)

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
        on_answer, self.on_answer = self.on_answer, None
        if on_answer is not None and data:
            on_answer()
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            events = self.machine.receive(data)
        except PscomError as error:
            self._fail(error)
        except Exception as error:  # the machine is closed, so the precon must end with it
            logger.exception("the precon with %s is broken off", self.peer_address)
            self._fail(ConnectError(f"{self.peer_address}: {error!r}"))
        else:
            self.deliver(events)

    def _fail(self, error: PscomError) -> None:
        self.close()
        self.owner.on_precon_error(self, error)

    def deliver(self, events: list[HandshakeEvent]) -> None:
        """Send the handshake's output, and deliver these events to the owner."""
        self.flush()
        for event in events:
            if isinstance(event, Ended):
                self.drop()
            self.owner.on_precon_event(self, event)
        if events:
            self.flush()


def _peer_address(sock: socket.socket) -> str:
    try:
        host, port = sock.getpeername()[:2]
    # the socket is closed already, or a relay's, which is not a TCP socket
    except (OSError, ValueError):
        return "?"
    return str(Location(str(host).removeprefix("::ffff:"), int(port)))
