"""The tests of `pscompy perf`, shared by all libraries that it measures.

A library is measured by two processes, an active and a passive one. For each job they make a
`Calls`, whose functions take no argument and always use the same two buffers, and the loops in this
module call these functions. Times are measured in the active process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter
from typing import Any, TypeAlias

LATENCY, STREAM, BOTH_WAYS = "latency", "stream", "both_ways"


@dataclass(frozen=True)
class Job:
    """One measurement with messages of `size` bytes: `count` round trips (LATENCY), or `count`
    windows of `window` messages, one way (STREAM) or both ways at once (BOTH_WAYS)."""

    test: str
    size: int
    count: int
    window: int

    @property
    def messages(self) -> int:
        """The number of messages by which the time is divided: those of both sides, without
        acknowledgements."""
        ways = 1 if self.test == STREAM else 2
        return self.count * ways * (1 if self.test == LATENCY else self.window)


@dataclass(frozen=True)
class Calls:
    """A library's operations on messages. An acknowledgement is an empty message."""

    outgoing: Any  # numpy array of job.size bytes
    incoming: Any  # numpy array of job.size bytes
    send: Callable[[], Any]
    recv: Callable[[], Any]
    isend: Callable[[], Any]
    irecv: Callable[[], Any]
    wait_all: Callable[[list[Any]], Any]
    acknowledge: Callable[[], Any]
    acknowledged: Callable[[], Any]


# One side of a test, a function that runs the job; that of the active side returns the seconds that
# the job took.
Half: TypeAlias = "Callable[[Job, Calls], float | None]"
Halves: TypeAlias = "dict[str, tuple[Half, Half]]"


def timed(half: Callable[[Job, Calls], None]) -> Half:
    """Return the Half (one side of a test) of the active side, which calls `half` and returns the
    seconds that the call took."""

    def run(job: Job, calls: Calls) -> float:
        start = perf_counter()
        half(job, calls)
        return perf_counter() - start

    return run


def _ping(job: Job, calls: Calls) -> None:
    send, recv = calls.send, calls.recv
    for _ in repeat(None, job.count):
        send()
        recv()


def _pong(job: Job, calls: Calls) -> None:
    send, recv = calls.send, calls.recv
    for _ in repeat(None, job.count):
        recv()
        send()


def _send_windows(job: Job, calls: Calls) -> None:
    isend, wait_all, acknowledged = calls.isend, calls.wait_all, calls.acknowledged
    for _ in repeat(None, job.count):
        wait_all([isend() for _ in repeat(None, job.window)])
        acknowledged()


def _receive_windows(job: Job, calls: Calls) -> None:
    irecv, wait_all, acknowledge = calls.irecv, calls.wait_all, calls.acknowledge
    for _ in repeat(None, job.count):
        wait_all([irecv() for _ in repeat(None, job.window)])
        acknowledge()


def _exchange_windows(job: Job, calls: Calls) -> None:
    """Both sides of BOTH_WAYS: the windows of the other side serve as acknowledgement."""
    isend, irecv, wait_all = calls.isend, calls.irecv, calls.wait_all
    for _ in repeat(None, job.count):
        requests = [irecv() for _ in repeat(None, job.window)]
        requests += [isend() for _ in repeat(None, job.window)]
        wait_all(requests)


# Test -> (half of the active side, half of the passive side).
HALVES: Halves = {
    LATENCY: (timed(_ping), _pong),
    STREAM: (timed(_send_windows), _receive_windows),
    BOTH_WAYS: (timed(_exchange_windows), _exchange_windows),
}
