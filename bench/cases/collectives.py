"""Collective operations: over shm and tcp, of objects, beside a busy process, while the ranks
compute, and by each algorithm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from bench import collectives, peers
from bench.collectives import BARRIER, COLLECTIVES, SIZES, of_object, of_size
from bench.launches import ranks, together
from bench.rows import MPI, OWN, Cell, Figures, Group, K, Launch, M

_TCP_BARS = {(name, size) for name in ("bcast", "allreduce") for size in (8, 64 * K, M)}
_OBJECT_BARS = {"allreduce": 0.5, "allreduce_obj": 0.8, "bcast_obj": 0.8}
# Algorithm -> the collectives that have this one and another.
_ALGORITHMS = {
    "tree": ("bcast", "reduce", "gather", "scatter"),
    "parts": ("bcast", "reduce", "allreduce"),
    "doubling": ("allreduce", "allgather"),
    "pairs": ("gather", "scatter", "allgather"),
}
_CHOSEN = tuple(name for name in COLLECTIVES if any(name in it for it in _ALGORITHMS.values()))

Case = Callable[..., Any]


def _against_mpi(
    number: int, transport: str, case: Case, *arguments: object, **variables: str
) -> dict[str, Launch]:
    own = partial(peers.pscompy, number, **variables)
    launches = {OWN: ranks(own, OWN, case, *arguments)}
    for peer in MPI:
        start = partial(peers.mpi, peer, number, transport)
        launches[peer] = ranks(start, "mpi4py", case, *arguments)
    return launches


def _cell(name: str, size: int, bar: float | None, against: tuple[str, ...] = MPI) -> Cell:
    return Cell(of_size(name, size), "us", bar, against, size, f"bytes of {name}")


def _over(
    transport: str, number: int, bar: Callable[[str, int], float | None], **variables: str
) -> Group:
    rows = [Cell(BARRIER, "us", bar(BARRIER, 0))]
    rows += [_cell(name, size, bar(name, size)) for name in COLLECTIVES for size in SIZES]
    barriers = _against_mpi(number, transport, collectives.barriers, **variables)
    calls = _against_mpi(
        number, transport, collectives.collectives, ",".join(COLLECTIVES), **variables
    )
    launches = {it: together(barriers[it], calls[it]) for it in calls}
    title = f"collectives of {number} ranks over {transport}"
    return Group(f"collectives-{transport}", title, tuple(rows), launches)


def _objects() -> Group:
    rows = tuple(Cell(of_object(name), "us", bar) for name, bar in _OBJECT_BARS.items())
    launches = _against_mpi(2, "shm", collectives.objects)
    return Group("collectives-objects", "collectives of numbers and objects", rows, launches)


def _busy() -> Group:
    rows = (Cell(BARRIER, "us", 0.1),)
    launches = _against_mpi(4, "shm", collectives.crowded)
    title = "barrier of 4 ranks on 2 cores beside a busy process"
    crowded = {name: partial(beside, launch) for name, launch in launches.items()}
    return Group("collectives-busy", title, rows, crowded)


def beside(launch: Launch, seconds: float) -> Figures:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            return launch(seconds)
        finally:
            busy.kill()


def _overlap() -> Group:
    rows = Cell(collectives.BLOCKING, "us"), Cell(collectives.LEFT, "%", 5.0, ())
    launches = _against_mpi(2, "shm", collectives.overlapped, PROGRESS_THREAD="1")
    return Group("collectives-overlap", "iallreduce while all ranks compute", rows, launches)


def _algorithms() -> Group:
    """The chosen algorithm against each that is forced, where that is suitable."""
    forced = tuple(_ALGORITHMS)
    rows = [_cell(name, size, None, forced) for name in _CHOSEN for size in SIZES]
    launches = {OWN: _calls(_CHOSEN)}
    for algorithm, names in _ALGORITHMS.items():
        variables = {f"COLL_{name.upper()}": algorithm for name in names}
        launches[algorithm] = _calls(names, **variables)
    title = "collectives of 4 ranks by each algorithm"
    return Group("collectives-algorithms", title, tuple(rows), launches)


def _calls(names: tuple[str, ...], **variables: str) -> Launch:
    start = partial(peers.pscompy, 4, **variables)
    return ranks(start, OWN, collectives.collectives, ",".join(names))


def groups() -> tuple[Group, ...]:
    return (
        _over("shm", 2, lambda name, size: 1.5),
        _over("tcp", 4, lambda name, size: 0.8 if (name, size) in _TCP_BARS else None, SHM="0"),
        _objects(),
        _busy(),
        _overlap(),
        _algorithms(),
    )
