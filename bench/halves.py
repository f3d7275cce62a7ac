"""Further tests that `pscompy perf` does not have, in the form of pscompy/cli/measure.py.

WAKE is the median time from the start of a send to the end of the receive, which was asleep. ASLEEP
is the processor time per second of such a receive. AWAIT is LATENCY for calls that are awaited.
Both processes read the same clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import repeat
from statistics import median
from typing import Any

import numpy as np

from pscompy.cli.measure import HALVES, Calls, Halves, Job, timed

WAKE, ASLEEP, AWAIT = "wake", "asleep", "await"
_PAUSE = 0.002  # seconds; much longer than any library polls before it sleeps
_LONG_PAUSE = 0.5


def _wake(job: Job, calls: Calls) -> float:
    """The active half of WAKE: the answer to each message is the time of its receipt."""
    ways = []
    received = calls.incoming.view(np.float64)
    for _ in repeat(None, job.count):
        time.sleep(_PAUSE)
        sent = time.perf_counter()
        calls.send()
        calls.recv()
        ways.append(received[0] - sent)
    return float(median(ways)) * job.messages


def _woken(job: Job, calls: Calls) -> None:
    answer = calls.outgoing.view(np.float64)
    for _ in repeat(None, job.count):
        calls.recv()
        answer[0] = time.perf_counter()
        calls.send()


def _let_sleep(job: Job, calls: Calls) -> float:
    """The active half of ASLEEP: the answer is the processor time per second of all threads of the
    passive process."""
    time.sleep(_LONG_PAUSE)
    calls.send()
    calls.recv()
    return float(calls.incoming.view(np.float64)[0]) * job.messages


def _sleep(job: Job, calls: Calls) -> None:
    start, used = time.perf_counter(), time.process_time()
    calls.recv()
    share = (time.process_time() - used) / (time.perf_counter() - start)
    calls.outgoing.view(np.float64)[0] = share
    calls.send()


def _awaited(first: str, second: str) -> Callable[[Job, Calls], None]:
    async def alternate(count: int, one: Callable[[], Any], other: Callable[[], Any]) -> None:
        for _ in repeat(None, count):
            await one()
            await other()

    def half(job: Job, calls: Calls) -> None:
        work: Awaitable[None] = alternate(job.count, getattr(calls, first), getattr(calls, second))
        asyncio.get_event_loop().run_until_complete(work)

    return half


MORE_HALVES: Halves = HALVES | {
    WAKE: (_wake, _woken),
    ASLEEP: (_let_sleep, _sleep),
    AWAIT: (timed(_awaited("send", "recv")), _awaited("recv", "send")),
}
