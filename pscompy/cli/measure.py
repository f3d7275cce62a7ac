"""What `pscompy perf` measures, written once for every library that it measures.

A library is measured by two processes, an active and a passive one. For each job they make a
`Calls`, whose functions take no argument and always use the same two buffers, and the loops here
call them. Times are those of the active process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter
from typing import Any

LATENCY, STREAM = "latency", "stream"


@dataclass(frozen=True)
class Job:
    """`count` times there and back (LATENCY), or `count` windows of messages one way (STREAM)."""

    test: str
    size: int
    count: int
    window: int

    @property
    def messages(self) -> int:
        """How many messages of `size` bytes follow one another."""
        return self.count * (2 if self.test == LATENCY else self.window)


@dataclass(frozen=True)
class Calls:
    """A library's operations on a message; an acknowledgement is one that is short."""

    send: Callable[[], Any]
    recv: Callable[[], Any]
    isend: Callable[[], Any]
    irecv: Callable[[], Any]
    wait_all: Callable[[list[Any]], Any]
    acknowledge: Callable[[], Any]
    acknowledged: Callable[[], Any]


def active(job: Job, calls: Calls) -> float:
    """This side's half; returns seconds."""
    start = perf_counter()
    if job.test == LATENCY:
        send, recv = calls.send, calls.recv
        for _ in repeat(None, job.count):
            send()
            recv()
    else:
        _windows(job, calls.isend, calls.wait_all, calls.acknowledged)
    return perf_counter() - start


def passive(job: Job, calls: Calls) -> None:
    """The other side's half."""
    if job.test == LATENCY:
        send, recv = calls.send, calls.recv
        for _ in repeat(None, job.count):
            recv()
            send()
    else:
        _windows(job, calls.irecv, calls.wait_all, calls.acknowledge)


def _windows(
    job: Job,
    start: Callable[[], Any],
    wait_all: Callable[[list[Any]], Any],
    end: Callable[[], Any],
) -> None:
    for _ in repeat(None, job.count):
        wait_all([start() for _ in repeat(None, job.window)])
        end()
