"""The cost of an object with many small arrays."""

from __future__ import annotations

from functools import partial

from bench import peers
from bench.jobs import run_ranks
from bench.lists import COUNT, SIZES, one_way
from bench.rows import MPI, OWN, Cell, Figures, Group, Launch

_PIPE = "multiprocessing"
_BAR = 0.7  # of each other library
_KINDS = ("mpi4py", "pkl5")


def _own(seconds: float) -> Figures:
    return run_ranks(peers.pscompy(2, "shm"), "lists.py", OWN, str(seconds))[0]


def _pipe(seconds: float) -> Figures:
    return run_ranks(peers.python(), "lists.py", _PIPE, str(seconds))[0]


def _mpi(peer: str, kind: str, seconds: float) -> Figures:
    return run_ranks(peers.mpi(peer, 2), "lists.py", kind, str(seconds))[0]


def group() -> Group:
    launches: dict[str, Launch] = {OWN: _own, _PIPE: _pipe}
    launches |= {f"{peer} {kind}": partial(_mpi, peer, kind) for peer in MPI for kind in _KINDS}
    against = tuple(name for name in launches if name != OWN)
    cells = tuple(
        Cell(one_way(size), "us", _BAR, against, size, "bytes in an array") for size in SIZES
    )
    return Group("growth-lists", f"lists of {COUNT:,} arrays, one way", cells, launches)
