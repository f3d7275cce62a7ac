"""Sampling of `pscompy perf`: calibrates the repetitions of a job and measures pairs in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pscompy.cli.measure import Job

ROUNDS = 5
_GROWTH = 8  # factor by which calibration increases the count of a job


class Pair(Protocol):
    """Two processes that can be measured."""

    name: str
    tests: tuple[str, ...]  # the tests that the pair supports

    def run(self, job: Job) -> float:
        """Run a job and return the seconds it took."""


@dataclass(frozen=True)
class Sample:
    """A job, and the seconds that it took in each round."""

    job: Job
    rounds: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The seconds per message, as the median of the rounds."""
        return statistics.median(self.rounds) / self.job.messages

    @property
    def one_way_us(self) -> float:
        return self.seconds * 1e6

    @property
    def megabytes_per_second(self) -> float:
        return self.job.size / self.seconds / 1e6

    @property
    def messages_per_second(self) -> float:
        return 1 / self.seconds


def sample(pairs: Sequence[Pair], job: Job, seconds: float) -> dict[str, Sample]:
    """Measure every pair for about `seconds` seconds, in ROUNDS rounds.

    The pairs take turns, so that a temporary load of the machine affects all of them. `job.count`
    is the smallest count. Returns the sample of each pair by its name.
    """
    jobs = {pair.name: _calibrate(pair, job, seconds / ROUNDS) for pair in pairs}
    rounds: dict[str, list[float]] = {pair.name: [] for pair in pairs}
    for _ in range(ROUNDS):
        for pair in pairs:
            rounds[pair.name].append(pair.run(jobs[pair.name]))
    return {name: Sample(jobs[name], tuple(taken)) for name, taken in rounds.items()}


def _calibrate(pair: Pair, job: Job, seconds: float) -> Job:
    """Return the job with the `count` that takes about `seconds`; the runs that find it also warm
    up the pair."""
    taken = pair.run(job)
    while (taken := pair.run(job)) * _GROWTH < seconds:
        job = replace(job, count=job.count * _GROWTH)
    return replace(job, count=max(job.count, round(job.count * seconds / taken)))
