"""Alarms: functions that a driver's thread calls at their time."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Alarm(NamedTuple):
    """`act()` is called at `deadline`, by time.monotonic(), unless over() is true."""

    deadline: float
    order: int
    over: Callable[[], bool]
    act: Callable[[], object]


class Alarms:
    """Alarms in the order of their deadlines. `wake()` is called when one is earlier than all that
    the thread has seen.

    No lock is needed: any thread queues alarms by `set` and `soon`, which may be called by a
    finalizer in the middle of another call, and only the driver's thread orders and runs them.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._order = itertools.count()
        self._queued: SimpleQueue[Alarm] = SimpleQueue()
        self._heap: list[Alarm] = []
        # deadline until which the thread sleeps; infinite while the thread reads the queue, so that
        # `set` wakes it in any case
        self._next = math.inf
        self._soon: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._soon_set = threading.Lock()  # held while an alarm for `_soon` is set

    def set(self, seconds: float, over: Callable[[], bool], act: Callable[[], object]) -> None:
        """Have act() called in that many seconds, unless over() is true by then."""
        made = Alarm(time.monotonic() + seconds, next(self._order), over, act)
        self._queued.put(made)
        if made.deadline < self._next:
            self._wake()

    def soon(self, seconds: float, act: Callable[[], object]) -> None:
        """Have act() called in at most that many seconds; one alarm serves all functions that
        wait."""
        self._soon.put(act)
        if self._soon_set.acquire(blocking=False):
            self.set(seconds, lambda: False, self._act_soon)

    # ---- on the driver's thread ----

    def _act_soon(self) -> None:
        self._soon_set.release()  # before the queue is read, so that no function is missed
        for act in _taken(self._soon):
            _run(act)

    def until_next(self) -> float | None:
        """Return the seconds until the next deadline, or None if there is none."""
        self._next = math.inf
        for made in _taken(self._queued):
            heapq.heappush(self._heap, made)
        while self._heap and self._heap[0].over():
            heapq.heappop(self._heap)
        if not self._heap:
            return None
        self._next = self._heap[0].deadline
        return max(0.0, self._next - time.monotonic())

    def run(self) -> None:
        """Call the functions whose deadlines have passed."""
        while self._heap and self._heap[0].deadline <= time.monotonic():
            alarm = heapq.heappop(self._heap)
            if not alarm.over():
                _run(alarm.act)


def _taken(queue: SimpleQueue[T]) -> Iterator[T]:
    """Yield what is in the queue."""
    with suppress(Empty):
        while True:
            yield queue.get_nowait()


def _run(act: Callable[[], object]) -> None:
    try:
        act()
    except Exception:  # the thread goes on, since it serves all communicators
        logger.exception("an alarm of the actions failed")
