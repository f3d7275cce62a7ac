"""A bounded number of threads for actions.

The threads are daemons, unlike those of `concurrent.futures.ThreadPoolExecutor`, so that an action
that never ends does not keep the interpreter from ending.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue


class Threads:
    """Begins pieces of work in order, in up to `most` threads that are started when needed."""

    def __init__(self, most: int, name: str) -> None:
        self.most = most
        self._name = name
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._idle = threading.Semaphore(0)  # counts waiting threads that have no work assigned
        self._lock = threading.Lock()
        self._started = 0
        self._ended = False

    def put(self, work: Callable[[], object]) -> None:
        """Run work() as soon as a thread is free. work() must not raise."""
        self._work.put(work)
        if self._idle.acquire(blocking=False):
            return
        with self._lock:
            if self._started == self.most or self._ended:
                return
            self._started += 1
            name = f"{self._name} {self._started}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def end(self) -> None:
        """Begin no more work; each thread ends as soon as it is free."""
        with self._lock:
            self._ended = True
            for _ in range(self._started):
                self._work.put(_nothing)  # wakes a thread

    def _run(self) -> None:
        while True:
            work = self._work.get()
            if self._ended:
                return
            work()
            del work  # releases the arguments of the work before this thread waits
            self._idle.release()


def _nothing() -> None:
    pass


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))
