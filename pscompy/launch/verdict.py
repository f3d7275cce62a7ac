"""Verdict: which rank has failed first, when one failure has led to others.

The ranks that depend on a failed rank often end before it does. A rank says that it leaves before
it closes its connections, so the others leave later (`Server.departures` has this order), and it
names the rank for want of which it fails. A rank that a signal ends says nothing: the ranks that
fail for want of it name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Failure(NamedTuple):
    """The exit code of a job, and the reason for its end."""

    code: int
    reason: str


class Verdict:
    """The ends of a job's ranks. `departures` are the ranks that have left, in their order, each
    with the rank that it blames; the caller adds to it."""

    def __init__(self, departures: Mapping[int, int | None]) -> None:
        self._departures = departures
        self._ends: dict[int, Failure | None] = {}
        self.failed = False  # whether any rank has failed

    def end(self, rank: int, failure: Failure | None) -> None:
        """Note the end of a rank, which has departed; `failure` is None if it has succeeded."""
        self._ends[rank] = failure
        self.failed = self.failed or failure is not None

    def first(self, patient: bool) -> Failure | None:
        """Return the first failure; None if there is none, or if `patient` and a rank that has not
        ended yet may turn out to have failed before."""
        for rank in self._departures:
            if rank not in self._ends:
                if patient:
                    return None
            elif self._ends[rank] is not None:
                return self._origin(rank, patient)
        return None

    def _origin(self, rank: int, patient: bool) -> Failure | None:
        """Return the failure to which the ranks lead that blame each other, from a failed one."""
        seen: set[int] = set()
        while rank not in seen:
            seen.add(rank)
            blamed = self._departures.get(rank)
            if blamed is None:
                break
            if blamed not in self._ends:
                return None if patient else self._ends[rank]
            if self._ends[blamed] is not None:
                rank = blamed
        return self._ends[rank]
