"""The summary at the end of a job that has failed: how each rank ended, and where it waited."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import groupby


class Summary:
    """The ends of a job's ranks. A rank that has not ended yet is not listed."""

    def __init__(self, size: int) -> None:
        self._size = size
        # rank -> how the rank ended, and what it last waited for ("" if it did not wait)
        self._ends: dict[int, tuple[str, str]] = {}

    def add(self, rank: int, status: int, wait: str) -> None:
        """Note the end of a rank; `status` is negative for a signal. `wait`, the wait that the rank
        published last, counts only if a signal ended the rank: a rank that ended by itself waited
        no longer."""
        self._ends[rank] = end_of(status), wait if status < 0 else ""

    def lines(self) -> Iterator[str]:
        """Yield one line for each group of ranks that ended alike, in the order of the lowest rank
        of each group. If the job has only one rank, and it did not wait, there is no line, because
        its end was reported already."""
        if self._size == 1 and not any(wait for _, wait in self._ends.values()):
            return
        alike: dict[tuple[str, str], list[int]] = {}
        for rank, known in sorted(self._ends.items()):
            alike.setdefault(known, []).append(rank)
        for (end, wait), ranks in alike.items():
            how = end if len(ranks) == 1 else end.replace("was", "were")
            yield f"{_names(ranks)} {how}" + (f"; {wait}" if wait else "")


def end_of(status: int) -> str:
    """Return in words how a process ended."""
    return f"exited with code {status}" if status >= 0 else f"was ended by {_signal_name(-status)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _names(ranks: list[int]) -> str:
    """Return ascending ranks in words, such as "ranks 0-2, 5"."""
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])
    ]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(texts)}"
