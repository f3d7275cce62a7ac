"""The control thread: one epoll set, one queue of commands, timers.

Any thread may queue commands, which wake the control thread by a descriptor; everything else runs
on the control thread. Signals are blocked in it, so that Ctrl-C interrupts the main thread. An
exception ends only the call-back that raised it, and is logged once.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import math
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pscompy.api.c.guard import NoWaiting, guard
from pscompy.control.descriptors import Spare

logger = logging.getLogger(__name__)

READ, WRITE = select.EPOLLIN, select.EPOLLOUT

RUN_SECONDS = 0.2  # seconds between two checks whether the control thread is alive
TIMERS_MIN = 64
# maximum number of events that one epoll_wait returns; the default allocates room for 1,023
EVENTS_MAX = 64
FAILURES_MAX = 256  # kinds of failures that are remembered, to log each kind once as an error
FAILURE_PAUSE = 0.05  # seconds to pause after a failure of the loop itself

Callback = Callable[..., object]
Source = tuple[Callable[[int], object], int]
"""The call-back of a descriptor, and the events that it waits for."""


class Timer:
    """A call of a function at a later time. It may be cancelled until then."""

    def __init__(self, due: float, function: Callback, args: tuple[Any, ...]) -> None:
        self.due = due
        self.function = function
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        """Drop the call. The timer itself may stay in the queue until it is due."""
        self.cancelled = True
        self.function, self.args = _nothing, ()


def _nothing() -> None:
    pass


class ControlThread:
    """Runs call-backs one at a time. Other threads may use only `call`, `run`, `start` and
    `stop`."""

    def __init__(self, name: str) -> None:
        self._epoll = select.epoll()
        self._sources: dict[int, Source] = {}  # call-back and events of each registered descriptor
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.spare = Spare()
        self._failures: set[str] = set()  # kinds of failures that were logged
        self._woken = False  # `_wake` is readable, or will be, so that `call` need not write to it
        self._commands: deque[tuple[Callback, tuple[Any, ...]]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._timers_max = TIMERS_MIN  # number of timers above which cancelled ones are removed
        self._stopping = False
        self._pumps: tuple[Callable[[], bool], ...] = ()
        # this control thread itself; in a SiblingThread, that of its host
        self.root: ControlThread = self
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.register(self._wake, READ, self._on_wake)

    # ---- called on any thread ----

    def start(self, begin: Callback = _nothing) -> None:
        """Call `begin`, then start the thread with all signals blocked, by the mask that it
        inherits."""
        begin()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def call(self, function: Callback, *args: Any) -> None:
        """Queue a call for the control thread; queued calls run in their order. After the end of
        the thread nothing is called. Waits for no Lock but `guard`."""
        self._commands.append((function, args))
        if self._woken:
            return
        try:
            self._woken = True
            with guard:  # so that `_close` does not close the descriptor during the write
                if self._wake >= 0:
                    os.eventfd_write(self._wake, 1)
        except BaseException:  # for instance a KeyboardInterrupt before the write
            self._woken = False
            raise

    def run(self, function: Callback, *args: Any, seconds: float = math.inf) -> None:
        """Call a function on the control thread, and wait until it has returned, but only for about
        `seconds`, and not if the thread has ended."""
        if threading.current_thread() is self._thread:
            function(*args)
            return
        ended = threading.Event()
        self.call(function, *args)
        self.call(ended.set)
        until = time.monotonic() + seconds
        while not ended.wait(RUN_SECONDS) and self._thread.is_alive():
            if time.monotonic() > until:
                break

    def stop(self, timeout: float) -> bool:
        """End the thread after the calls queued so far. Returns False if the thread hangs in a
        call."""
        self.call(self._stop)
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        self._close()
        return True

    def abandon(self) -> None:
        """In the child after a fork, where the thread does not exist: close the descriptors.

        No descriptor is unregistered, because that would change the parent's epoll set.
        """
        self._close()

    def _close(self) -> None:
        self._epoll.close()
        with guard:
            wake, self._wake = self._wake, -1
            if wake >= 0:
                os.close(wake)
        self.spare.close()

    # ---- called on the control thread ----

    def register(self, fd: int, events: int, callback: Callable[[int], object]) -> None:
        self._epoll.register(fd, events)
        self._sources[fd] = callback, events

    def modify(self, fd: int, events: int, callback: Callable[[int], object]) -> None:
        self._epoll.modify(fd, events)
        self._sources[fd] = callback, events

    def unregister(self, fd: int) -> None:
        del self._sources[fd]
        with contextlib.suppress(OSError):  # the descriptor may be closed already
            self._epoll.unregister(fd)

    def later(self, seconds: float, function: Callback, *args: Any) -> Timer:
        if len(self._timers) >= self._timers_max:
            self._forget_cancelled()
        timer = Timer(time.monotonic() + seconds, function, args)
        heapq.heappush(self._timers, (timer.due, next(self._numbers), timer))
        return timer

    def _forget_cancelled(self) -> None:
        """Remove cancelled timers from the queue: most are cancelled long before they are due."""
        self._timers = [entry for entry in self._timers if not entry[2].cancelled]
        heapq.heapify(self._timers)
        self._timers_max = max(TIMERS_MIN, 2 * len(self._timers))

    def add_pump(self, pump: Callable[[], bool]) -> None:
        """Call `pump` before every wait. If it returns False the thread only looks at its
        descriptors, without waiting, because there is more to do."""
        self._pumps += (pump,)

    def remove_pump(self, pump: Callable[[], bool]) -> None:
        self._pumps = tuple(it for it in self._pumps if it != pump)

    def _stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        with NoWaiting():
            while not self._stopping:
                if not self._guarded(self._turn):
                    time.sleep(FAILURE_PAUSE)

    def _turn(self) -> None:
        ready = self._epoll.poll(self._timeout(), EVENTS_MAX)
        for fd, source, events in [(fd, self._sources.get(fd), events) for fd, events in ready]:
            # An earlier call-back may have unregistered this descriptor, or reused its number.
            if source is not None and self._sources.get(fd) is source:
                callback, wanted = source
                # An error or a hang-up is reported as all events that are waited for.
                self._guarded(callback, wanted if events & ~(READ | WRITE) else events & wanted)
        self._run_timers()

    def _timeout(self) -> float | None:
        if not self._pumped():
            return 0
        if self._commands:
            return 0
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _pumped(self) -> bool:
        """Run all pumps. Returns whether the thread may sleep."""
        idle = True
        for pump in self._pumps:
            try:
                idle = pump() and idle
            except BaseException as error:
                self._log_failure(pump, error)
                time.sleep(FAILURE_PAUSE)
                idle = False
        return idle

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                self._guarded(timer.function, *timer.args)

    def _on_wake(self, _events: int) -> None:
        os.eventfd_read(self._wake)
        self._woken = False  # cleared before the commands are taken, so that none is missed
        while self._commands:
            function, args = self._commands.popleft()
            self._guarded(function, *args)

    def _guarded(self, function: Callback, *args: Any) -> bool:
        """Call a call-back. Returns False if it failed, which is logged."""
        try:
            function(*args)
        except BaseException as error:
            self._log_failure(function, error)
            return False
        return True

    def _log_failure(self, function: Callback, error: BaseException) -> None:
        """Log the first failure of its kind as an error, and later ones for debugging only: an
        event that persists would fill the log. Raises nothing."""
        with contextlib.suppress(BaseException):
            kind = f"{getattr(function, '__qualname__', function)} {type(error).__name__}"
            known = kind in self._failures
            if len(self._failures) < FAILURES_MAX:
                self._failures.add(kind)
            level = logging.DEBUG if known else logging.ERROR
            logger.log(level, "a call-back of the control thread failed", exc_info=error)
