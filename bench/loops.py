"""The loops that two processes run, in the form of pscompy/cli/measure.py: those of `pscompy perf`,
and loops in which processes sleep, are awaited, or compute.

Role 0 is the active process. Where processes compute it is the receiver, except in the skeletons of
programs, where both send and receive. The computation is away.c, which enters no library. Both
processes read the same clock.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Awaitable, Callable
from functools import cache, partial
from itertools import repeat
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import numpy as np

from bench.native import FOLDER, built
from pscompy.cli.measure import HALVES, Calls, Half, Halves, Job, timed

# `window` is the pause before a message, in microseconds.
WAKE, WAKE_SLOWEST = "wake", "wake_slowest"
ASLEEP, AWAIT = "asleep", "await"
# `window` is the microseconds of the computation, or its steps.
RECEIVER_AWAY, SENDER_AWAY = "receiver_away", "sender_away"
WORK, EXCHANGE = "work", "exchange"
SWEEP, SWEEP_LATER, SYMMETRICAL = "sweep", "sweep_later", "symmetrical"
# `window` is a number of messages.
PREPOSTED, SHORT, WINDOWS = "preposted", "short", "windows"
_LONG_PAUSE = 0.5  # seconds; much longer than any library polls before it sleeps
_REST = 3  # the computation that needs no message is so many times as long as the one that does


# ---- one side sleeps ----------------------------------------------------------------------------


def _ways(job: Job, calls: Calls) -> list[float]:
    """The seconds from the start of each send to the end of its receive, which was asleep: the
    answer to each message is the time of its receipt."""
    ways = []
    received = calls.incoming.view(np.float64)
    for _ in repeat(None, job.count):
        time.sleep(job.window / 1e6)
        sent = perf_counter()
        calls.send()
        calls.recv()
        ways.append(received[0] - sent)
    return ways


def _wake(job: Job, calls: Calls) -> float:
    return float(median(_ways(job, calls)))


def _wake_slowest(job: Job, calls: Calls) -> float:
    """Of twenty messages, the time of the slowest but one."""
    return float(quantiles(_ways(job, calls), n=20)[-1])


def _woken(job: Job, calls: Calls) -> None:
    answer = calls.outgoing.view(np.float64)
    for _ in repeat(None, job.count):
        calls.recv()
        answer[0] = perf_counter()
        calls.send()


def _let_sleep(job: Job, calls: Calls) -> float:
    """The answer is the processor time per second of all threads of the
    passive process."""
    time.sleep(_LONG_PAUSE)
    calls.send()
    calls.recv()
    return float(calls.incoming.view(np.float64)[0])


def _sleep(job: Job, calls: Calls) -> None:
    start, used = perf_counter(), time.process_time()
    calls.recv()
    share = (time.process_time() - used) / (perf_counter() - start)
    calls.outgoing.view(np.float64)[0] = share
    calls.send()


def _awaited(first: str, second: str) -> Callable[[Job, Calls], None]:
    """A ping-pong of calls that are awaited."""

    async def alternate(count: int, one: Callable[[], Any], other: Callable[[], Any]) -> None:
        for _ in repeat(None, count):
            await one()
            await other()

    def half(job: Job, calls: Calls) -> None:
        work: Awaitable[None] = alternate(job.count, getattr(calls, first), getattr(calls, second))
        asyncio.get_event_loop().run_until_complete(work)

    return half


# ---- one side is away ---------------------------------------------------------------------------


def build() -> None:
    built("away.c", ".so", "-shared", "-fPIC")


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(FOLDER / "away.so"))
    library.away.argtypes = (ctypes.c_double, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    library.work.argtypes = (ctypes.c_ulong,)
    return library


def _receive_away(job: Job, calls: Calls) -> float:
    """The number of messages that were there, as a whole, at the end of the computation."""
    away, memory, there = _library().away, calls.incoming, 0
    for _ in repeat(None, job.count):
        memory[:] = 0
        request = calls.irecv()
        calls.acknowledge()
        there += away(job.window / 1e6, memory.ctypes.data, job.size, 1)
        calls.wait_all([request])
    return float(there)


def _send(job: Job, calls: Calls) -> None:
    for _ in repeat(None, job.count):
        calls.acknowledged()
        calls.send()


def _receive(job: Job, calls: Calls) -> float:
    """The number of messages that were received before the sender came back. A second message has
    the time when it did."""
    early = 0
    for _ in repeat(None, job.count):
        request = calls.irecv()
        calls.acknowledge()
        calls.wait_all([request])
        received = perf_counter()
        calls.recv()
        early += received < calls.incoming.view(np.float64)[0]
    return float(early)


def _send_away(job: Job, calls: Calls) -> None:
    away, memory = _library().away, calls.outgoing
    for _ in repeat(None, job.count):
        calls.acknowledged()
        request = calls.isend()
        away(job.window / 1e6, memory.ctypes.data, job.size, 1)
        back = perf_counter()
        calls.wait_all([request])
        memory.view(np.float64)[0] = back
        calls.send()


# ---- what a receive costs besides the computation -----------------------------------------------


def _work(job: Job, calls: Calls) -> None:
    _library().work(job.count)


def _nothing(job: Job, calls: Calls) -> None:
    pass


def _exchange(job: Job, calls: Calls) -> float:
    """The median seconds of a receive and a computation between its start and its end, less those
    of the computation alone (Sandia's method). The message to the sender, which says that the
    receive is posted, does not count."""
    work, both, alone = _library().work, [], []
    for _ in repeat(None, job.count):
        start = perf_counter()
        request = calls.irecv()
        posted = perf_counter()
        calls.acknowledge()
        begun = perf_counter()
        work(job.window)
        calls.wait_all([request])
        both.append(perf_counter() - begun + posted - start)
        begun = perf_counter()
        work(job.window)
        alone.append(perf_counter() - begun)
    return median(both) - median(alone)


# ---- receives that are posted first -------------------------------------------------------------


def _ping(job: Job, calls: Calls, send: str) -> None:
    first = getattr(calls, send)
    for _ in repeat(None, job.count):
        request = calls.irecv()
        first()
        calls.wait_all([request])


def _pong(job: Job, calls: Calls, send: str) -> None:
    answer = getattr(calls, send)
    request = calls.irecv()
    for left in range(job.count - 1, -1, -1):
        calls.wait_all([request])
        if left:
            request = calls.irecv()
        answer()


def _ping_pong(send: str) -> tuple[Half, Half]:
    return timed(partial(_ping, send=send)), partial(_pong, send=send)


def _receive_windows(job: Job, calls: Calls) -> None:
    for _ in repeat(None, job.count):
        requests = [calls.irecv() for _ in repeat(None, job.window)]
        calls.acknowledge()
        calls.wait_all(requests)


def _send_windows(job: Job, calls: Calls) -> None:
    for _ in repeat(None, job.count):
        calls.acknowledged()
        calls.wait_all([calls.isend() for _ in repeat(None, job.window)])


# ---- skeletons of programs ----------------------------------------------------------------------


def _sweep(job: Job, calls: Calls, first: bool, later: bool) -> None:
    """Stages of a sweep, as in the kernel SP of the NAS benchmarks: a process waits for its
    predecessor, computes what depends on that, and sends to its successor. Then, or before, it
    computes what depends on nobody. With `later` the message may leave during that."""
    work = _library().work
    sent: list[Any] = []
    request = calls.irecv()
    for left in range(job.count - 1, -1, -1):
        if not first:
            work(_REST * job.window)
            calls.wait_all([request, *sent])
            request = calls.irecv() if left else None
        work(job.window)
        if later:
            sent = [calls.isend()]
        else:
            calls.send()
        if first:
            work(_REST * job.window)
            calls.wait_all([request, *sent])
            request = calls.irecv() if left else None
    if not first:
        calls.wait_all(sent)


def _sweeps(later: bool) -> tuple[Half, Half]:
    return timed(partial(_sweep, first=True, later=later)), partial(
        _sweep, first=False, later=later
    )


def _symmetrical(job: Job, calls: Calls) -> None:
    """Stages in which both processes send to each other, compute, and wait for both messages."""
    work = _library().work
    request = calls.irecv()
    for left in range(job.count - 1, -1, -1):
        sent = calls.isend()
        work(_REST * job.window)
        calls.wait_all([request, sent])
        request = calls.irecv() if left else None
        work(job.window)


LOOPS: Halves = HALVES | {
    WAKE: (_wake, _woken),
    WAKE_SLOWEST: (_wake_slowest, _woken),
    ASLEEP: (_let_sleep, _sleep),
    AWAIT: (timed(_awaited("send", "recv")), _awaited("recv", "send")),
    RECEIVER_AWAY: (_receive_away, _send),
    SENDER_AWAY: (_receive, _send_away),
    WORK: (timed(_work), _nothing),
    EXCHANGE: (_exchange, _send),
    PREPOSTED: _ping_pong("send"),
    SHORT: _ping_pong("acknowledge"),
    WINDOWS: (timed(_receive_windows), _send_windows),
    SWEEP: _sweeps(later=False),
    SWEEP_LATER: _sweeps(later=True),
    SYMMETRICAL: (timed(_symmetrical), _symmetrical),
}
