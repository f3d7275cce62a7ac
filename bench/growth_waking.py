"""The time to wake a receiver that has slept."""

from __future__ import annotations

from collections.abc import Iterator

from bench import peers
from bench.jobs import run_ranks
from bench.rows import OWN, Cell, Figures, Group
from bench.waking import PAUSE, PAUSES, SLOWEST, after

_SOCKET = "blocking socket pair"
_BAR = 1.2


def _own(seconds: float) -> Figures:
    return run_ranks(peers.pscompy(2, "shm"), "waking.py", OWN, str(seconds))[0]


def _socket(seconds: float) -> Figures:
    return run_ranks(peers.python(), "waking.py", "socket", str(seconds))[0]


def _cells() -> Iterator[Cell]:
    for pause in PAUSES:
        bar = _BAR if pause == PAUSE else None
        yield Cell(after(pause), "us", bar, (_SOCKET,), pause, "milliseconds of sleep")
    yield Cell(SLOWEST, "us", _BAR, (_SOCKET,))


def group() -> Group:
    title = "shm: waking a receiver that sleeps"
    return Group("growth-waking", title, tuple(_cells()), {OWN: _own, _SOCKET: _socket})
