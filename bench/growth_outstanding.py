"""What a long message costs while many are outstanding, on a lane that can neither put nor get."""

from __future__ import annotations

import dataclasses

from bench import peers
from bench.jobs import run_ranks
from bench.outstanding import NUMBERS, SIZE, each
from bench.rows import OWN, Cell, Figures, Group

_FEW, *_, _MANY = NUMBERS
_RATIO = f"{_MANY:,} / {_FEW:,} outstanding"


def _launch(seconds: float) -> Figures:
    start = peers.pscompy(2, "tcp")
    environment = {**start.environment, "PSP_RENDEZVOUS": str(SIZE)}
    start = dataclasses.replace(start, environment=environment)
    figures = run_ranks(start, "outstanding.py", str(seconds))[0]
    return {**figures, _RATIO: figures[each(_MANY)] / figures[each(_FEW)]}


def group() -> Group:
    cells = [
        Cell(each(number), "us", size=number, over="outstanding messages") for number in NUMBERS
    ]
    title = f"tcp: rendezvous of {SIZE // 1000} kB by fragments"
    return Group("growth-outstanding", title, (*cells, Cell(_RATIO, "x", 1.1, ())), {OWN: _launch})
