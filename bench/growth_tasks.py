"""The cost of an empty function that runs in another process, alone and among many."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from bench import peers
from bench.jobs import run_ranks
from bench.rows import OWN, Cell, Figures, Group
from bench.tasks import CALL, CHUNKS, ROUND_TRIP, SUBMIT, WORKERS, mapped

_POOL = "multiprocessing"
_RATIO = f"{CALL} / {ROUND_TRIP}"
_SUBMIT_BAR = 3.0
# Chunk -> the bar, times the pool's rate.
_BARS = {1: 2.0, 10: None, 100: 1.0}


def _own(seconds: float) -> Figures:
    (figures,) = run_ranks(peers.pscompy(1 + WORKERS, "shm"), "tasks.py", OWN, str(seconds))
    start = peers.pscompy(2, "shm")
    start = dataclasses.replace(start, environment={**start.environment, "PSP_SPIN_US": "0"})
    (asleep,) = run_ranks(start, "tasks.py", "sleepers", str(seconds))
    return {**figures, **asleep, _RATIO: figures[CALL] / asleep[ROUND_TRIP]}


def _pool(seconds: float) -> Figures:
    (figures,) = run_ranks(peers.python(), "tasks.py", _POOL, str(seconds))
    return figures


def _cells() -> Iterator[Cell]:
    yield Cell(CALL, "us", None, ())
    yield Cell(ROUND_TRIP, "us", None, ())
    yield Cell(_RATIO, "x", 2.0, ())
    yield Cell(SUBMIT, "k/s", _SUBMIT_BAR, (_POOL,))
    for chunk in CHUNKS:
        yield Cell(mapped(chunk), "k/s", _BARS[chunk], (_POOL,), chunk, "tasks in a chunk")


def group() -> Group:
    title = f"empty actions; tasks in {WORKERS} processes"
    return Group("growth-tasks", title, tuple(_cells()), {OWN: _own, _POOL: _pool})
