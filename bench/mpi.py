"""Cases of mpi4py alone, the same on every MPI: types, waiting, communicators."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.collectives import checked, median_us, of_size
from bench.native import pin
from bench.rows import Figures, K, M
from pscompy.cli.libraries import Ranks

BARRIER = "barrier"
CALLS = {"allreduce": (8, 64 * K, M), "bcast": (64 * K,), "alltoall": (64 * K,)}
COLUMN, SUBARRAY = "column of 1,000 doubles, one way", "subarray of 1 MiB, one way"
RECV, DUP = "processor time of a Recv of 4 s", "Dup and Free"
_ROWS, _COLUMNS, _SIDE = 1000, 100, 512  # doubles; of a matrix, and of the 1 MiB of a larger one
_RECV_SECONDS, _TRIAL = 4.0, 10


def collectives(ranks: Ranks, seconds: float) -> Figures:
    """A barrier, and the calls of CALLS, in µs."""
    pin(ranks.rank % 2)
    figures = {BARRIER: median_us(ranks, ranks.barrier, seconds)}
    for name, sizes in CALLS.items():
        for size in sizes:
            figures[of_size(name, size)] = median_us(ranks, checked(ranks, name, size), seconds)
    return figures


# ---- types --------------------------------------------------------------------------------------


def types(ranks: Ranks, seconds: float) -> Figures:
    """Half of a round trip between two ranks, in µs."""
    from mpi4py import MPI

    pin(ranks.rank)
    column = MPI.DOUBLE.Create_vector(_ROWS, 1, _COLUMNS).Commit()
    whole, part, start = [2 * _SIDE] * 2, [_SIDE, _SIDE // 2], [_SIDE // 2] * 2
    subarray = MPI.DOUBLE.Create_subarray(whole, part, start).Commit()
    figures = {}
    for name, shape, kind in (
        (COLUMN, (_ROWS, _COLUMNS), column),
        (SUBARRAY, (2 * _SIDE, 2 * _SIDE), subarray),
    ):
        figures[name] = _one_way_us(ranks, [np.full(shape, float(ranks.rank)), 1, kind], seconds)
        kind.Free()
    return figures


def _one_way_us(ranks: Ranks, buffer: list[Any], seconds: float) -> float:
    sends, receives = ranks.send, ranks.recv
    first, second = (sends, receives) if ranks.rank == 0 else (receives, sends)

    def round_trips(count: int) -> float:
        ranks.barrier()
        start = time.perf_counter()
        for _ in range(count):
            first(buffer, ranks.peer, 0)
            second(buffer, ranks.peer, 0)
        return time.perf_counter() - start

    return _repeated(ranks, round_trips, seconds) / 2


def _repeated(ranks: Ranks, run: Callable[[int], float], seconds: float) -> float:
    """The µs of one of as many calls as rank 0 says that fit into the seconds."""
    from mpi4py import MPI

    each = run(_TRIAL) / _TRIAL
    count: int = MPI.COMM_WORLD.bcast(max(_TRIAL, int(seconds / each)))
    return run(count) / count * 1e6


# ---- others -------------------------------------------------------------------------------------


def waiting(ranks: Ranks, seconds: float) -> Figures:
    """The processor seconds of a rank, all its threads, while it waits for a message."""
    room = np.zeros(8, np.uint8)
    ranks.barrier()
    if ranks.rank == 0:
        time.sleep(_RECV_SECONDS)
        ranks.send(ranks.buffer(room), ranks.peer, 0)
        return {}
    used = time.process_time()
    ranks.recv(ranks.buffer(room), ranks.peer, 0)
    return {RECV: time.process_time() - used}


def communicators(ranks: Ranks, seconds: float) -> Figures:
    """A duplicate of COMM_WORLD, which is freed at once, in µs."""
    from mpi4py import MPI

    def duplicate(count: int) -> float:
        ranks.barrier()
        start = time.perf_counter()
        for _ in range(count):
            MPI.COMM_WORLD.Dup().Free()
        return time.perf_counter() - start

    return {DUP: _repeated(ranks, duplicate, seconds)}
