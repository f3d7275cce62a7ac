"""Sealed datagrams between the ranks of one job on one node.

The name of each rank's socket, in the abstract name space, follows from a key and the rank, so that
no address is asked for. Every datagram is sealed with the key for its receiver: no other process
can make one, or send it on to a third rank. Replayed datagrams arrive; the nonces that each has are
for the receiver to compare.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pscompy.control.event_loop import READ, ControlThread, Timer
from pscompy.control.handshake.frames import MAC_SIZE

logger = logging.getLogger(__name__)

NONCE_SIZE = 16
NO_NONCE = bytes(NONCE_SIZE)
_SIZE_MAX = 4096
_READ_MAX = 64  # datagrams read before other descriptors are served again
_FULL_SECONDS = 0.001  # before a datagram is sent again that found the peer's queue full
_HEAD = struct.Struct(f"<Bi{NONCE_SIZE}s{NONCE_SIZE}s")
_CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group
_CREDENTIALS_ROOM = socket.CMSG_SPACE(_CREDENTIALS.size)


class Datagram(NamedTuple):
    """A datagram that has arrived from `rank`, whose process is `pid`, or 0 if that is not visible
    here."""

    kind: int
    rank: int
    theirs: bytes  # the sender's nonce
    own: bytes  # the nonce of this process that the sender answers
    body: bytes
    pid: int


class Datagrams:
    """The socket of one rank. `receive` gets every datagram; `unreachable`, which `send` may call,
    gets a rank to which nothing can be sent, and the reason. All methods but `reaches` are for the
    control thread, or are called before it starts."""

    def __init__(
        self,
        thread: ControlThread,
        rank: int,
        receive: Callable[[Datagram], object],
        unreachable: Callable[[int, str], object],
    ) -> None:
        self._thread = thread
        self._rank = rank
        self._receive = receive
        self._unreachable = unreachable
        self._socket: socket.socket | None = None
        self._probe: socket.socket | None = None  # asks the kernel whether a name is bound
        self._key = b""
        self._names: dict[int, bytes] = {}  # of the sockets, by rank
        self._unsent: dict[int, deque[bytes]] = {}  # datagrams for which a peer has no room yet
        self._retry: Timer | None = None

    def open(self, key: bytes) -> None:
        """Bind the socket. Raises `OSError` if that is not possible."""
        self._key = key
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            sock.bind(self._name(self._rank))
        except OSError:
            sock.close()
            raise
        self._socket = sock
        self._probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._thread.register(sock.fileno(), READ, self._on_ready)

    def close(self) -> None:
        """After the thread has ended, or in the child after a fork: close the descriptors."""
        for open_socket in filter(None, (self._socket, self._probe)):
            open_socket.close()
        self._socket = self._probe = None

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def reaches(self, rank: int) -> bool:
        """Return whether this rank has such a socket on this node. For any thread."""
        probe = self._probe
        if probe is None or rank in (-1, self._rank):
            return False
        return probe.connect_ex(self._name(rank)) == 0

    def _name(self, rank: int) -> bytes:
        name = self._names.get(rank)
        if name is None:
            secret = keyed(self._key, b"socket", _packed(rank))[:16]
            name = self._names[rank] = b"\0pscompy-" + secret.hex().encode()
        return name

    def _seal(self, receiver: int, content: bytes) -> bytes:
        return keyed(self._key, b"seal", _packed(receiver) + content)

    # ---- sending ----

    def send(self, rank: int, kind: int, own: bytes, theirs: bytes, body: bytes = b"") -> None:
        """Send a datagram to this rank, or keep it until the rank has room for it."""
        content = _HEAD.pack(kind, self._rank, own, theirs) + body
        self._unsent.setdefault(rank, deque()).append(content + self._seal(rank, content))
        self._flush(rank)

    def _flush(self, rank: int) -> None:
        """Send what waits for this rank. Nothing is sent to a rank that has ended."""
        waiting = self._unsent[rank]
        try:
            while waiting and self._socket is not None:
                self._socket.sendto(waiting[0], self._name(rank))
                waiting.popleft()
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOBUFS):
                self._retry = self._retry or self._thread.later(_FULL_SECONDS, self._flush_all)
                return
            waiting.clear()
            self._unreachable(rank, f"cannot be reached: {error.strerror}")
        del self._unsent[rank]

    def _flush_all(self) -> None:
        self._retry = None
        for rank in list(self._unsent):
            self._flush(rank)

    # ---- receiving ----

    def _on_ready(self, _events: int) -> None:
        for _ in range(_READ_MAX):
            if self._socket is None:
                return
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_SIZE_MAX, _CREDENTIALS_ROOM)
            except BlockingIOError:
                return
            credentials = ancillary[0][2] if ancillary else bytes(_CREDENTIALS.size)
            self._check(data, pid=_CREDENTIALS.unpack(credentials)[0])

    def _check(self, data: bytes, pid: int) -> None:
        content, seal = data[:-MAC_SIZE], data[-MAC_SIZE:]
        if len(content) < _HEAD.size or not hmac.compare_digest(
            self._seal(self._rank, content), seal
        ):
            logger.debug("a datagram of a stranger is dropped")
            return
        kind, rank, theirs, own = _HEAD.unpack_from(content)
        self._receive(Datagram(kind, rank, theirs, own, content[_HEAD.size :], pid))


def keyed(key: bytes, purpose: bytes, content: bytes) -> bytes:
    """A hash under the key, for this purpose of at most 16 bytes: BLAKE2b, whose call costs a
    quarter of that of an HMAC."""
    return hashlib.blake2b(content, digest_size=MAC_SIZE, key=key, person=purpose).digest()


def new_nonce() -> bytes:
    return os.urandom(NONCE_SIZE)


def _packed(rank: int) -> bytes:
    return rank.to_bytes(4, "little", signed=True)
