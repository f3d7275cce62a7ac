"""The door of a listening socket: who may stand there without having proved the key.

Anybody can connect. A caller costs a place and a descriptor until it has proved the key, and is
dropped when its time is over. Where all places are taken, or descriptors get few, the newest caller
is let in and the oldest one goes, of the source that holds most places: one that knows the key
proves it within milliseconds, so it is not the oldest, and a source that calls without end pushes
out its own. Only where descriptors are few without any such caller is a peer turned away, by a
greeting that says so.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from pscompy.control import descriptors
from pscompy.control.event_loop import READ, ControlThread, Timer
from pscompy.control.handshake.handshake import full_greeting
from pscompy.control.precon import Link, LinkOptions

logger = logging.getLogger(__name__)

PLACES_MAX = 1024  # of callers that have not proved the key, of one door
PLACES_SHARE = 4  # they take no more than one of so many of the process's descriptors
UNPROVED_SECONDS = 10.0  # for a caller to prove the key
FREE_MAX = 16  # descriptors that callers leave to the connections that come up, and to the program
FREE_SHARE = 8  # or fewer: one of so many
ACCEPT_MAX = 32  # callers taken in before those inside are served
PAUSE = 0.25  # seconds without accepting, where even a spare descriptor does not help
COMPLAIN_SECONDS = 10.0  # between two lines of the log that say the same


def to_leave() -> int:
    return max(descriptors.CONNECTION, min(FREE_MAX, descriptors.limit() // FREE_SHARE))


Source = bytes
RELAYED = b""  # all callers that relays bring, who cannot be told apart
_NO_MEMORY = (errno.ENOBUFS, errno.ENOMEM)


def places() -> int:
    return max(1, min(PLACES_MAX, descriptors.limit() // PLACES_SHARE))


def source_of(address: Any) -> Source:
    """Where a caller comes from: an IPv4 address, or the 64 bits that name an IPv6 network."""
    host = str(address[0]).partition("%")[0]
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host)
    return packed[12:] if packed.startswith(_MAPPED) else packed[:8]


_MAPPED = bytes(10) + b"\xff\xff"


class Crowd:
    """Callers that have not proved the key, by source, the oldest first."""

    def __init__(self) -> None:
        self._sources: dict[Source, dict[Link, None]] = {}
        self._of: dict[Link, Source] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, link: Link) -> bool:
        return link in self._of

    def add(self, link: Link, source: Source) -> None:
        self._of[link] = source
        self._sources.setdefault(source, {})[link] = None

    def discard(self, link: Link) -> None:
        source = self._of.pop(link, None)
        if source is None:
            return
        del self._sources[source][link]
        if not self._sources[source]:
            del self._sources[source]

    def first_to_go(self) -> Link:
        """The oldest of the source that holds most places."""
        crowded = max(self._sources.values(), key=len)
        return next(iter(crowded))

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._of))


class Door:
    """A listening socket. What comes in gets a machine and must prove the key soon."""

    def __init__(
        self,
        thread: ControlThread,
        listening: socket.socket,
        options: LinkOptions,
        new_link: Callable[[socket.socket], Link],
    ) -> None:
        self._thread = thread
        self._socket: socket.socket | None = listening
        self._new_link = new_link
        self._crowd = Crowd()
        self._timers: dict[Link, Timer] = {}
        self._places = places()
        self._leave = to_leave()
        self._plenty = False  # descriptors, for the callers that are being taken in
        self._paused = False
        self._complained = -COMPLAIN_SECONDS
        options.apply(listening)  # and so to what it accepts
        thread.register(listening.fileno(), READ, self._on_ready)

    def close(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            if not self._paused:
                self._thread.unregister(sock.fileno())
            sock.close()
        for link in self._crowd:
            link.drop()

    def forget(self) -> None:
        """After a fork, in the child."""
        if self._socket is not None:
            os.close(self._socket.detach())
            self._socket = None

    def proved(self, link: Link) -> None:
        """The link has proved the key (or is gone): it does not count any more."""
        self._crowd.discard(link)
        timer = self._timers.pop(link, None)
        if timer is not None:
            timer.cancel()

    def admit(self, sock: socket.socket) -> None:
        """Take a connected socket in that has not come through the listening one: a relay's."""
        self._enter(sock, RELAYED)

    # ---- accepting ----

    def _on_ready(self, _events: int) -> None:
        """Take some in, then those inside are served. Whether descriptors are left is asked for
        all of them at once."""
        self._plenty = descriptors.left(self._leave + ACCEPT_MAX)
        for _ in range(ACCEPT_MAX):
            if self._socket is None or not self._accept(self._socket):
                break
        self._plenty = False

    def _accept(self, listening: socket.socket) -> bool:
        """Take one caller in; False: nobody is there, or nobody can be taken in now."""
        try:
            sock, address = listening.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            return self._on_accept_error(listening, error)
        sock.setblocking(False)  # its options are those of the listening one
        self._enter(sock, source_of(address))
        return True

    def _enter(self, sock: socket.socket, source: Source) -> None:
        if self._socket is None:
            sock.close()
            return
        while len(self._crowd) >= self._places:
            self._push_out()
        while self._crowd and not self._enough_left():
            self._push_out()
        if self._crowd or self._enough_left():
            self._let_in(sock, source)
        else:
            self._turn_away(sock)

    def _enough_left(self) -> bool:
        return self._plenty or descriptors.left(self._leave)

    def _let_in(self, sock: socket.socket, source: Source) -> None:
        try:
            link = self._new_link(sock)
        except BaseException:
            sock.close()
            raise
        if link.closed:
            return
        link.on_close.append(self.proved)
        self._crowd.add(link, source)
        self._timers[link] = self._thread.later(UNPROVED_SECONDS, self._expire, link)

    # ---- too many, or too few descriptors ----

    def _push_out(self) -> None:
        link = self._crowd.first_to_go()
        logger.debug("%s makes room for a newer caller", link.peer_address)
        self.proved(link)
        link.drop()

    def _expire(self, link: Link) -> None:
        if link in self._crowd:
            logger.info("%s has not proved the key in time", link.peer_address)
            self.proved(link)
            link.drop()

    def _turn_away(self, sock: socket.socket) -> None:
        """Say why, and hang up. What the caller has said is read first: an unread word would make
        the hanging up a reset, which may overtake the greeting."""
        self._complain()
        with contextlib.suppress(OSError):
            sock.setblocking(False)
            sock.send(full_greeting())
            sock.shutdown(socket.SHUT_WR)
            sock.recv(4096)
        sock.close()

    def _on_accept_error(self, listening: socket.socket, error: OSError) -> bool:
        """Without any descriptor a caller is pushed out, or one is turned away on the spare one."""
        if not descriptors.exhausted(error):
            if error.errno in _NO_MEMORY:
                logger.error("cannot take a connection in: %s", error.strerror)
                self._pause()
            return False
        if self._crowd:
            self._push_out()
            return True
        self._complain()
        with self._thread.spare.lent():
            try:
                sock, _ = listening.accept()
            except OSError:
                self._pause()  # somebody else was faster
                return False
            self._turn_away(sock)
        return True

    def _complain(self) -> None:
        if time.monotonic() - self._complained >= COMPLAIN_SECONDS:
            self._complained = time.monotonic()
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
