"""How `pscompy perf` gets figures: how often to repeat a job, and pairs measured in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pscompy.cli.measure import Job

ROUNDS = 5
_GROWTH = 8


class Pair(Protocol):
    """Two processes that can be measured."""

    name: str
    tests: tuple[str, ...]  # those that it can do

    def run(self, job: Job) -> float:
        """Seconds that the job took."""


@dataclass(frozen=True)
class Sample:
    """A job, and the seconds that it took in each round."""

    job: Job
    rounds: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Per message: the median of the rounds."""
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
    """Measure every pair about `seconds` long, in ROUNDS rounds, the pairs taking turns.

    What disturbs the machine for a while disturbs all of them; `job.count` is the least count.
    """
    jobs = {pair.name: _calibrate(pair, job, seconds / ROUNDS) for pair in pairs}
    rounds: dict[str, list[float]] = {pair.name: [] for pair in pairs}
    for _ in range(ROUNDS):
        for pair in pairs:
            rounds[pair.name].append(pair.run(jobs[pair.name]))
    return {name: Sample(jobs[name], tuple(taken)) for name, taken in rounds.items()}


def _calibrate(pair: Pair, job: Job, seconds: float) -> Job:
    """The job, repeated as often as fits; finding that out warms up as well."""
    taken = pair.run(job)
    while (taken := pair.run(job)) * _GROWTH < seconds:
        job = replace(job, count=job.count * _GROWTH)
    return replace(job, count=max(job.count, round(job.count * seconds / taken)))
