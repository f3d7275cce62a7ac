"""What a message costs while many receives are posted, or many messages are unexpected."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench import peers
from bench.jobs import against_mpi, run_ranks
from bench.matching import MANY, MEMORY, NUMBERS, POSTED, UNEXPECTED, one_way, to_any
from bench.rows import Cell, Figures, Group

_BAR = 0.02  # of Open MPI's time at 10,000
_RATIO = 2.0
_RANKS = 2


def _cells() -> Iterator[Cell]:
    for what in (POSTED, UNEXPECTED):
        for number in NUMBERS:
            bar, against = (_BAR, ("openmpi",)) if number == 10_000 else (None, ())
            yield Cell(one_way(what, number), "us", bar, against, number, f"{what} messages")
        yield Cell(_ratio(what), "x", _RATIO, ())
    for number in NUMBERS:
        yield Cell(to_any(number), "us", None, (), number, "receives that wait for the messages")
    yield Cell(MEMORY, "B", 300.0, ())


def _ratio(what: str) -> str:
    return f"{MANY:,} {what} / 1"


def _launch(start: Callable[[], peers.Start], library: str, seconds: float) -> Figures:
    (figures, _) = run_ranks(start(), "matching.py", library, str(seconds))
    for what in (POSTED, UNEXPECTED):
        if one_way(what, MANY) in figures:
            figures[_ratio(what)] = figures[one_way(what, MANY)] / figures[one_way(what, 1)]
    return figures


def group() -> Group:
    launches = against_mpi(_launch, _RANKS)
    return Group("growth-matching", "matching among many", tuple(_cells()), launches)
