"""How many messages the threads exchange that share one session."""

from __future__ import annotations

from collections.abc import Callable

from bench import peers
from bench.jobs import against_mpi, run_ranks
from bench.many_threads import THREADS, rate
from bench.rows import Cell, Figures, Group

_RANKS = 2


def _launch(start: Callable[[], peers.Start], library: str, seconds: float) -> Figures:
    return run_ranks(start(), "many_threads.py", library, str(seconds))[0]


def group() -> Group:
    cells = tuple(
        Cell(rate(number), "M/s", 1.0, ("mpich",), number, "threads") for number in THREADS
    )
    return Group(
        "growth-threads", "threads that share a session", cells, against_mpi(_launch, _RANKS)
    )
