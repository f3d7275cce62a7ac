"""A bounded number of threads for actions.

They are daemons, unlike those of concurrent.futures, so that an action that never ends does not
keep the interpreter from ending.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable


class Threads:
    """Runs what it is given, in order, in up to `most` threads that begin when they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self.most = most
        self._name = name
        self._work: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._begun = 0
        self._ended = False

    @property
    def waiting(self) -> int:
        """How many pieces of work no thread has begun."""
        return len(self._work)

    def put(self, work: Callable[[], object]) -> None:
        """Run work(), which raises nothing, as soon as a thread is free."""
        with self._changed:
            self._work.append(work)
            if self._idle >= len(self._work):
                self._changed.notify()
                return
            if self._begun == self.most:
                return
            self._begun += 1
            name = f"{self._name} {self._begun}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def end(self) -> None:
        """Begin nothing more; threads end as they become free."""
        with self._changed:
            self._ended = True
            self._work.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._work and not self._ended:
                    self._changed.wait()
                self._idle -= 1
                if self._ended:
                    return
                work = self._work.popleft()
            work()
            del work  # what it has is not kept while there is nothing to do


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))
