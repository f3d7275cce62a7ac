"""Alarms: functions that a driver's thread calls at their time."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

logger = logging.getLogger(__name__)


class Alarm(NamedTuple):
    """`act()` is called at `deadline`, by time.monotonic(), unless over() is true."""

    deadline: float
    order: int
    over: Callable[[], bool]
    act: Callable[[], object]


class Alarms:
    """Alarms in the order of their deadlines. `wake()` is called when the first one has changed."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._heap: list[Alarm] = []
        self._soon: list[Callable[[], object]] = []

    def set(self, seconds: float, over: Callable[[], bool], act: Callable[[], object]) -> None:
        """Have act() called in that many seconds, unless over() is true by then."""
        made = Alarm(time.monotonic() + seconds, next(self._order), over, act)
        with self._lock:
            heapq.heappush(self._heap, made)
            first = self._heap[0] is made
        if first:
            self._wake()

    def soon(self, seconds: float, act: Callable[[], object]) -> None:
        """Have act() called in at most that many seconds; one alarm serves all functions that
        wait."""
        with self._lock:
            self._soon.append(act)
            first = len(self._soon) == 1
        if first:
            self.set(seconds, lambda: False, self._act_soon)

    def _act_soon(self) -> None:
        with self._lock:
            soon, self._soon = self._soon, []
        for act in soon:
            _run(act)

    def until_next(self) -> float | None:
        """Return the seconds until the next deadline, or None if there is none."""
        with self._lock:
            while self._heap and self._heap[0].over():
                heapq.heappop(self._heap)
            return max(0.0, self._heap[0].deadline - time.monotonic()) if self._heap else None

    def run(self) -> None:
        """Call the functions whose deadlines have passed."""
        late = []
        with self._lock:
            while self._heap and self._heap[0].deadline <= time.monotonic():
                late.append(heapq.heappop(self._heap))
        for alarm in late:
            if not alarm.over():
                _run(alarm.act)


def _run(act: Callable[[], object]) -> None:
    try:
        act()
    except Exception:  # the thread goes on, since it serves all communicators
        logger.exception("an alarm of the actions failed")
