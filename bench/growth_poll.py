"""What a message costs while many other connections are open."""

from __future__ import annotations

from collections.abc import Iterator

from bench import peers
from bench.jobs import run_ranks
from bench.many_open import OPEN, one_way
from bench.rows import OWN, Cell, Figures, Group

# Transport -> the limit of the latency with most connections open, divided by that with none.
_BARS = {"shm": 1.5, "tcp": 1.2}
_MOST = max(OPEN)


def _ratio(transport: str) -> str:
    return f"{transport}, {_MOST:,} others open / none"


def _launch(seconds: float) -> Figures:
    figures: Figures = {}
    for transport in _BARS:
        start = peers.pscompy(2, transport)
        figures |= run_ranks(start, "many_open.py", transport, str(seconds))[0]
        most, none = (figures[one_way(transport, number)] for number in (_MOST, 0))
        figures[_ratio(transport)] = most / none
    return figures


def _cells() -> Iterator[Cell]:
    for transport, bar in _BARS.items():
        over = f"connections over {transport}"
        for number in OPEN:
            yield Cell(one_way(transport, number), "us", None, (), number + 1, over)
        yield Cell(_ratio(transport), "x", bar, ())


def group() -> Group:
    title = "latency among many connections"
    return Group("growth-poll", title, tuple(_cells()), {OWN: _launch})
