"""The memory of a connection over shm, by its use and the number of connections."""

from __future__ import annotations

from collections.abc import Iterator

from bench import peers
from bench.jobs import run_ranks
from bench.many_used import IDLE, LATER, LAZY, USED
from bench.rows import OWN, Cell, Figures, Group

_NUMBERS = (100, 300, 900)
# Stage -> the bar in KiB.
_BARS = {LAZY: None, IDLE: None, USED: 64.0, LATER: 64.0}


def _each(stage: str, number: int) -> str:
    return f"each of {number} connections, {stage}"


def _launch(seconds: float) -> Figures:
    figures: Figures = {}
    for number in _NUMBERS:
        (told,) = run_ranks(peers.python(), "many_used.py", str(number))
        figures |= {_each(stage, number): kib for stage, kib in told.items()}
    return figures


def _cells() -> Iterator[Cell]:
    for stage, bar in _BARS.items():
        for number in _NUMBERS:
            yield Cell(_each(stage, number), "KiB", bar, (), number, f"connections, {stage}")


def group() -> Group:
    title = "resident memory of a connection over shm"
    return Group("growth-memory", title, tuple(_cells()), {OWN: _launch})
