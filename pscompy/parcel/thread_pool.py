"""A bounded number of threads for actions.

The threads are daemons, unlike those of `concurrent.futures.ThreadPoolExecutor`, so that an action
that never ends does not keep the interpreter from ending.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from pscompy.api.c import _binding
from pscompy.api.c.guard import Lock
from pscompy.parcel.action import raise_interrupt

if TYPE_CHECKING:
    from pscompy.api.request import Request


class Threads:
    """Begins pieces of work in order, in up to `most` threads that are started when needed. A
    thread in `help_until` is one of them, and gets work first, because it has often received the
    work."""

    def __init__(self, most: int, name: str) -> None:
        self.most = most
        self._name = name
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._idle = 0  # number of waiting threads that have no work assigned
        self._lock = Lock()
        self._started = 0
        self._ended = False
        self._helped = 0  # 1 while a thread is in help_until
        # request on which the thread in help_until waits; completes with work for that thread
        self._waiter: Request | None = None

    def put(self, work: Callable[[], object]) -> None:
        """Run work() as soon as a thread is free, and run it again as long as it returns something
        true, which means that it has more to do. work() must not raise."""
        with self._lock:
            waiter, self._waiter = self._waiter, None
            if waiter is not None:
                waiter._complete(work)
                return
            self._work.put(work)
            if self._idle:
                self._idle -= 1
                return
            if self._started + self._helped == self.most or self._ended:
                return
            self._started += 1
            name = f"{self._name} {self._started}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def help_until(self, request: Request, event: Callable[[], Request]) -> None:
        """Run work in the calling thread until a request has completed. Does nothing if `most`
        threads exist, another thread is in this method, or `end` was called. `event()` makes an
        event of the worker that drives the request."""
        with self._lock:
            if self._started + self._helped == self.most or self._helped or self._ended:
                return
            self._helped = 1
        try:
            while not request.done():
                self._help(self._next_work(request, event), request)
                raise_interrupt()
        finally:
            with self._lock:
                self._helped = 0
            if not self._work.empty():
                self.put(_nothing)  # starts a thread in place of this one

    def _help(self, work: Callable[[], Any], request: Request) -> None:
        """Run work() until it has nothing left to do; leave the rest to other threads once the
        request has completed or an action was interrupted."""
        more: object = False
        try:
            while (more := work()) and not request.done():
                raise_interrupt()
        finally:
            if more:
                self.put(work)

    def _next_work(self, request: Request, event: Callable[[], Request]) -> Callable[[], Any]:
        """Return the next piece of work for the thread in help_until, or _nothing once the request
        has completed."""
        with suppress(Empty):
            return self._work.get_nowait()
        waiter = event()  # making the event may run call-backs, which put work
        with self._lock:
            if self._work.empty():
                self._waiter = waiter
            else:
                waiter._complete(_nothing)
        try:
            _binding.wait_any([request, waiter])
        except BaseException:
            self.put(self._take_back(waiter))
            raise
        return self._take_back(waiter)

    def _take_back(self, waiter: Request) -> Callable[[], Any]:
        """End a wait for work. Returns the work that was put into it, or _nothing."""
        with self._lock:
            if self._waiter is waiter:
                self._waiter = None
                waiter._complete(_nothing)
        return waiter.result()  # type: ignore[no-any-return]

    def end(self) -> None:
        """Begin no more work; each thread ends as soon as it is free."""
        with self._lock:
            self._ended = True
            for _ in range(self._started):
                self._work.put(_nothing)  # wakes a thread

    def _run(self) -> None:
        while True:
            work = self._work.get()
            while not self._ended and work():
                pass
            if self._ended:
                return
            del work  # releases the arguments of the work before this thread waits
            with self._lock:
                self._idle += 1


def _nothing() -> None:
    pass


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))
