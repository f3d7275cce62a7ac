"""mpi4py on pscompy, beside mpi4py on MPICH and on Open MPI: the same program for all three."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench import collectives as calls
from bench import mpi, peers, pool, startup
from bench.cases.collectives import beside
from bench.launches import Make, Start, Test, launched, of_tests, ranks, run
from bench.rows import MPI, OWN, Cell, Figures, Group, K, Launch, M
from pscompy.cli.measure import LATENCY, Job
from pscompy.cli.sizes import with_unit

# Transport -> size in bytes -> the bar of its cell.
ONE_WAY = {
    "shm": {8: 0.8, 64 * K: 0.9, M: 0.8, 16 * M: 0.8},
    "tcp": {8: 0.8, 64 * K: 1.0, M: 1.0, 16 * M: 1.0},
}
_MOST = 1.5  # bar of a collective, whose time is only watched
_START, _START_RANKS = "launch to past the first barrier", 4


def _starts(number: int, transport: str = "shm") -> dict[str, Start]:
    starts: dict[str, Start] = {OWN: partial(peers.own_mpi, number, transport)}
    for peer in MPI:
        starts[peer] = partial(peers.mpi, peer, number, transport)
    return starts


def _pairs(library: str, transport: str) -> dict[str, Make]:
    """Two ranks, which are called in a way of bench/libraries.py."""
    return {
        name: partial(launched, name, library, start)
        for name, start in _starts(2, transport).items()
    }


def _ranks(number: int, case: Callable[..., Any]) -> dict[str, Launch]:
    return {name: ranks(start, "mpi4py", case) for name, start in _starts(number).items()}


# ---- two ranks ----------------------------------------------------------------------------------


def _one_way(transport: str) -> Group:
    tests = [
        Test(
            Cell(f"{transport} one way, {with_unit(size)}", "us", bar, size=size),
            Job(LATENCY, size, 1, 1),
        )
        for size, bar in ONE_WAY[transport].items()
    ]
    title = f"mpi4py over {transport}: Send and Recv"
    return of_tests(f"mpi-{transport}", title, tests, _pairs("mpi4py", transport))


def _objects() -> Group:
    tests = [
        Test(Cell("a small dictionary, one way", "us", 0.9), Job(LATENCY, 8, 1, 1)),
        Test(Cell("array of 1 MiB, one way", "us", 0.9), Job(LATENCY, M, 1, 1)),
    ]
    title = "mpi4py over shm: send and recv of objects"
    return of_tests("mpi-objects", title, tests, _pairs("mpi4py-pickle", "shm"))


def _types() -> Group:
    rows = Cell(mpi.COLUMN, "us", 1.0), Cell(mpi.SUBARRAY, "us", 1.0)
    return Group("mpi-types", "mpi4py over shm: derived types", rows, _ranks(2, mpi.types))


def _collectives() -> Group:
    names = [mpi.BARRIER]
    names += [calls.of_size(name, size) for name, sizes in mpi.CALLS.items() for size in sizes]
    rows = tuple(Cell(name, "us", _MOST) for name in names)
    title = "mpi4py over shm: collectives of 2 ranks"
    return Group("mpi-collectives", title, rows, _ranks(2, mpi.collectives))


def _waiting() -> Group:
    rows = (Cell(mpi.RECV, "s", 0.02, ()),)
    return Group("mpi-waiting", "mpi4py: a Recv that waits", rows, _ranks(2, mpi.waiting))


def _pool() -> Group:
    launches = {name: partial(_pooled, start) for name, start in _starts(2).items()}
    rows = (Cell(pool.NAME, "s", 1.0),)
    return Group("mpi-pool", "mpi4py.futures, 2 ranks", rows, launches)


def _pooled(start: Start, seconds: float) -> Figures:
    (told,) = run(start(), lambda folder: ["-m", "mpi4py.futures", pool.__file__, folder])
    return told


# ---- four ranks ---------------------------------------------------------------------------------


def _busy() -> Group:
    title = "mpi4py: barrier of 4 ranks on 2 cores beside a busy process"
    launches = {name: partial(beside, it) for name, it in _ranks(4, calls.crowded).items()}
    return Group("mpi-busy", title, (Cell(calls.BARRIER, "us", 0.1),), launches)


def _communicators() -> Group:
    rows = (Cell(mpi.DUP, "us", 2.0),)
    title = "mpi4py: communicators of 4 ranks"
    return Group("mpi-communicators", title, rows, _ranks(4, mpi.communicators))


def _startup() -> Group:
    launches = {name: partial(_started, start) for name, start in _starts(_START_RANKS).items()}
    rows = (Cell(_START, "s"),)
    return Group("mpi-startup", f"mpi4py: start of {_START_RANKS} ranks", rows, launches)


def _started(start: Start, seconds: float) -> Figures:
    begun = time.perf_counter()
    told = run(start(), lambda folder: [startup.__file__, folder, "mpi4py"])
    return {_START: max(rank["past_barrier"] for rank in told) - begun}


def groups() -> tuple[Group, ...]:
    return (
        *map(_one_way, ONE_WAY),
        _objects(),
        _types(),
        _collectives(),
        _waiting(),
        _pool(),
        _busy(),
        _communicators(),
        _startup(),
    )
