"""Tests in which processes compute, in the form of pscompy/cli/measure.py.

Role 0 is the receiver, except in the skeletons of programs, where both processes send and receive.
The computation is away.c, which enters no library. Both processes read the same clock.
"""

from __future__ import annotations

import ctypes
from functools import cache, partial
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from bench.native import FOLDER, built
from pscompy.cli.measure import Calls, Half, Halves, Job, timed

# `window` is the microseconds of the computation, or its steps.
RECEIVER_AWAY, SENDER_AWAY = "receiver_away", "sender_away"
WORK, EXCHANGE = "work", "exchange"
SWEEP, SWEEP_LATER, SYMMETRICAL = "sweep", "sweep_later", "symmetrical"
# `window` is a number of messages.
PREPOSTED, SHORT, WINDOWS = "preposted", "short", "windows"
_REST = 3  # the computation that needs no message is so many times as long as the one that does


def build() -> None:
    built("away.c", ".so", "-shared", "-fPIC")


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(FOLDER / "away.so"))
    library.away.argtypes = (ctypes.c_double, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    library.work.argtypes = (ctypes.c_ulong,)
    return library


# ---- one side is away ---------------------------------------------------------------------------


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


COMPUTING_HALVES: Halves = {
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
