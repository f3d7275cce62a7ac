"""The end of a session: by `close`, by the collector, or in a forked child."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pscompy.api import process
from pscompy.api.c.guard import guard, may_wait
from pscompy.api.dropped import Place, warn
from pscompy.config import logs
from pscompy.errors import Closed

if TYPE_CHECKING:
    from pscompy.api.c import _binding
    from pscompy.api.c._binding import Sleeper
    from pscompy.api.listener import Socket
    from pscompy.api.memory import MemoryRegion, Pin
    from pscompy.api.siblings import Siblings
    from pscompy.config.config import Config
    from pscompy.control.handshake.identity import Identity
    from pscompy.control.manager import Control
    from pscompy.control.worker import Worker

_closers: set[int] = set()  # the idents of threads that close a session
_inherited = "inherited through fork: open a new Session in the child"


class SessionEnd:
    """The part of `Session` that ends it. Session sets these attributes when it is opened."""

    # text that names the endpoints that the session belongs to; "" if it belongs to none
    _users = ""
    _opened: Place | None = None  # where the program has opened it; None for one of endpoints
    _forked: bool
    _closing: bool
    _alive: threading.Lock  # held while the session is open; see `_wait_closed`
    # whether the control thread has ended; None until the session has ended its connections
    _control_ended: bool | None
    _config: Config
    _identity: Identity
    _core: Worker
    _binding: _binding.Worker
    _control: Control
    _siblings: Siblings[Any]
    _sockets: list[Socket]
    _regions: dict[MemoryRegion | Pin, None]
    _sleeper: Sleeper | None
    _on_closed: Callable[[Any], object]
    _on_abandoned: Callable[[], object]

    def close(self) -> None:
        """Close all connections, sockets and everything else; what was sent still arrives.
        Idempotent.

        Waits up to PSP_SHUTDOWN_TIMEOUT seconds for peers that are silent. Calls that wait in
        other threads raise `Closed`. In a callback that the `close` of any session runs, `close`
        does not wait for a thread that closes this session already. A finalizer or a signal handler
        that must not wait has the session closed in the background.
        """
        if not may_wait():
            process.in_background(self.close)
            return
        self._shut(self._config["SHUTDOWN_TIMEOUT"])

    def _abandon(self) -> None:
        """Close a session that the program has dropped, without waiting for peers."""
        self._shut(0)
        self._on_abandoned()

    def __del__(self) -> None:
        if self._opened is None or self._closing or process.exiting:
            return
        identity = self._identity
        try:
            warn("Session" if identity.rank < 0 else "World", identity.name, self._opened)
        finally:
            process.close_dropped(self)

    def _shut(self, timeout: float) -> None:
        with guard:
            first, self._closing = not self._closing, True
        if self._forked:
            return
        this = threading.get_ident()
        nested = this in _closers  # then this is a callback of a `close` in the same thread
        if not first:
            if not nested:  # the thread that closes this session may wait for the other `close`
                self._wait_closed()
            return
        _closers.add(this)
        try:
            self._close_all(timeout)
        finally:
            if not nested:
                _closers.discard(this)
            process.remove(self)
            self._on_closed(self)
            self._alive.release()

    def _wait_closed(self, timeout: float = -1) -> bool:
        """Wait until the session is closed, for `timeout` seconds at most unless that is -1.
        Returns whether the session is closed."""
        if closed := self._alive.acquire(timeout=timeout):
            self._alive.release()
        return closed

    def _close_all(self, timeout: float) -> None:
        until = time.monotonic() + timeout

        def in_time(close: Callable[[float], None]) -> None:
            close(max(0.0, until - time.monotonic()))

        # closes all sessions even if one raises; this session's worker last
        with contextlib.ExitStack() as ends:
            ends.callback(in_time, self._close_worker)
            for sibling in self._siblings:
                ends.callback(in_time, sibling._shut)

    def _end_connections(self, timeout: float) -> None:
        """Close all sockets and connections, and end the control thread; the worker stays. A second
        call does nothing."""
        if self._control_ended is not None:
            return
        for sock in list(self._sockets):
            sock.close()
        try:
            self._control.close(timeout)
        finally:
            self._control_ended = self._control.stop()

    def _close_worker(self, timeout: float) -> None:
        try:
            self._end_connections(timeout)
        finally:
            if self._config["DEBUG_STATS"]:
                counters = _figures(self._core.counters())
                logs.notice("%s%s: %s", self._identity.name, self._users, counters)
            regions = list(self._regions)
            for region in regions:
                region._forget()
            reached = self._binding.close(
                self._core.destroy if self._control_ended else self._core.abandon
            )
            for region in regions:
                region._keep() if reached else region.close()
            self._sleeper = None

    def _drive_besides(self) -> None:
        """Have the control thread make progress for all sessions that end with this one."""
        for sibling in self._siblings.everyone():
            sibling._control.drive()

    def _stop_listening(self, sock: Socket) -> None:
        self._sockets.remove(sock)
        if not self._forked and self._alive.locked():
            self._control.stop_listening(sock._listener)

    def _check(self) -> None:
        if self._forked:
            raise Closed(_inherited)
        if self._closing:
            raise Closed("the session is closed")

    def _after_fork(self) -> None:
        """Called in the child after a fork: every use of the session raises from then on, and what
        the child shares with its parent stays untouched. Nothing is left to close in the child."""
        self._forked = self._closing = True
        self._binding.forked()
        self._control.forked()
        self._core.forked()


def _figures(counters: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in counters.items() if value) or "nothing"
