"""What it costs to connect with many peers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from bench import peers
from bench.jobs import run_ranks
from bench.rows import MPI, OWN, Cell, Figures, Group

_COUNT = 900  # connections to one process
_RANKS = 32
# Ranks -> the bar of their first all-to-all: milliseconds, or times the better MPI.
_FIRST = {8: (10.0, ()), _RANKS: (4.0, MPI)}
# Transport -> the bar for _COUNT connections, in seconds.
_MANY: dict[str, float | None] = {"SHM": None, "TCP": 1.5}
_TO_ONE = f"{_COUNT} ranks of a node with one, from {_RANKS - 1}"


def _first(ranks: int) -> str:
    return f"first all-to-all of {ranks} ranks"


def _many(transport: str) -> str:
    return f"{_COUNT} connections, {transport.lower()}"


def _all_to_all(start: Callable[[int], peers.Start], library: str, seconds: float) -> Figures:
    figures: Figures = {}
    for ranks in _FIRST:
        told = run_ranks(start(ranks), "first_messages.py", library)
        figures[_first(ranks)] = max(rank["seconds"] for rank in told) * 1e3
    return figures


def _own(seconds: float) -> Figures:
    figures = _all_to_all(peers.pscompy, OWN, seconds)
    told = run_ranks(peers.pscompy(_RANKS), "first_messages.py", OWN, "one")
    figures[_TO_ONE] = told[0]["seconds"] / (_RANKS - 1) * _COUNT
    for transport in _MANY:
        (told_one,) = run_ranks(peers.python(), "many_connections.py", transport, str(_COUNT))
        figures[_many(transport)] = told_one["seconds"]
        figures[_descriptors(transport)] = told_one["descriptors"]
    return figures


def _descriptors(transport: str) -> str:
    return f"descriptors of each, {transport.lower()}"


def _cells() -> Iterator[Cell]:
    for ranks, (bar, against) in _FIRST.items():
        over = "ranks in their first all-to-all"
        yield Cell(_first(ranks), "ms", bar, against, ranks, over)
    yield Cell(_TO_ONE, "s", 0.5, ())
    for transport, limit in _MANY.items():
        yield Cell(_many(transport), "s", limit, ())
        yield Cell(_descriptors(transport), "", 3.0, ())


def group() -> Group:
    launches = {peer: partial(_all_to_all, partial(peers.mpi, peer), "mpi4py") for peer in MPI}
    title = "connecting with many at once"
    return Group("growth-connect", title, tuple(_cells()), {OWN: _own, **launches})
