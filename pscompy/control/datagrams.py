"""Sealed datagrams between the ranks of one job on one node; each says that its sender is closing.

The name of each rank's socket, in the abstract name space, follows from a key and the rank, so that
nobody has to ask for it. Every datagram is sealed with the key for its receiver: no other process
can make one, or send it on to a third rank. A replayed datagram is not detected.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import socket
from collections.abc import Callable

from pscompy.control.event_loop import READ, ControlThread

logger = logging.getLogger(__name__)

_READ_MAX = 64  # datagrams read before other descriptors are served again
_RANK_SIZE = 4
_SEAL_SIZE = 32


class Datagrams:
    """The socket of one rank. `receive` gets the rank of the sender of every datagram. All methods
    are for the control thread, or are called before it starts."""

    def __init__(self, thread: ControlThread, rank: int, receive: Callable[[int], object]) -> None:
        self._thread = thread
        self._rank = rank
        self._receive = receive
        self._socket: socket.socket | None = None
        self._key = b""

    def open(self, key: bytes) -> None:
        """Bind the socket. Raises `OSError` if that is not possible."""
        self._key = key
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(self._name(self._rank))
        self._thread.register(self._socket.fileno(), READ, self._on_ready)

    def close(self) -> None:
        """After the thread has ended, or in the child after a fork: close the descriptor."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, rank: int) -> None:
        """Send a datagram to this rank. A rank that has ended, or whose queue is full, gets
        none."""
        if self._socket is not None:
            content = _packed(self._rank)
            with contextlib.suppress(OSError):
                self._socket.sendto(content + self._seal(rank, content), self._name(rank))

    def _name(self, rank: int) -> bytes:
        return b"\0pscompy-" + self._keyed(b"socket", _packed(rank)).hex()[:32].encode()

    def _seal(self, receiver: int, content: bytes) -> bytes:
        return self._keyed(b"seal", _packed(receiver) + content)

    def _keyed(self, purpose: bytes, content: bytes) -> bytes:
        """Return a keyed hash of `content`; `purpose`, at most 16 bytes, separates uses of the
        key."""
        return hashlib.blake2b(
            content, digest_size=_SEAL_SIZE, key=self._key, person=purpose
        ).digest()

    def _on_ready(self, _events: int) -> None:
        for _ in range(_READ_MAX):
            if self._socket is None:
                return
            try:
                data = self._socket.recv(_RANK_SIZE + _SEAL_SIZE + 1)
            except BlockingIOError:
                return
            content, seal = data[:_RANK_SIZE], data[_RANK_SIZE:]
            if hmac.compare_digest(self._seal(self._rank, content), seal):
                self._receive(int.from_bytes(content, "little"))
            else:
                logger.debug("a datagram of a stranger is dropped")


def _packed(rank: int) -> bytes:
    return rank.to_bytes(_RANK_SIZE, "little")
