"""Cases of collective operations, by pscompy and by mpi4py. Each call is checked once before it is
timed, and begins after a barrier, which is not timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.libraries import Own
from bench.native import pin
from bench.rows import Figures, K, M
from pscompy.cli.libraries import Ranks
from pscompy.cli.sizes import with_unit
from pscompy.errors import ConfigError

SIZES = (8, K, 64 * K, M)  # bytes of a rank's part
OVERLAPPED = 16 * M
LEFT = f"left to wait of iallreduce, {with_unit(OVERLAPPED)}"
BLOCKING = f"allreduce, {with_unit(OVERLAPPED)}"
BARRIER = "barrier"
_TRIAL, _MOST = 3, 2000  # calls

Expected = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Collective:
    """A call of mpi4py. `expected` computes what a rank gets from what all ranks give: row r of a
    matrix has the parts of rank r, of which there is one, or one for each rank (`parts`)."""

    mpi: str
    expected: Expected
    parts: bool = False
    from_rank: int = 0  # the ranks before get nothing
    root_only: bool = False

    def gets(self, rank: int) -> bool:
        return rank >= self.from_rank and not (self.root_only and rank)


def _sum(given: Any, rank: int) -> Any:
    return given[:, 0].sum()


def _all(given: Any, rank: int) -> Any:
    return given[:, 0]


# The name of a call of pscompy -> that of mpi4py; rank 0 is the root.
COLLECTIVES = {
    "bcast": Collective("Bcast", lambda given, rank: given[0, 0]),
    "reduce": Collective("Reduce", _sum, root_only=True),
    "allreduce": Collective("Allreduce", _sum),
    "scan": Collective("Scan", lambda given, rank: given[: rank + 1, 0].sum()),
    "exscan": Collective("Exscan", lambda given, rank: given[:rank, 0].sum(), from_rank=1),
    "reduce_scatter": Collective(
        "Reduce_scatter_block", lambda given, rank: given[:, rank].sum(), parts=True
    ),
    "gather": Collective("Gather", _all, root_only=True),
    "allgather": Collective("Allgather", _all),
    "scatter": Collective("Scatter", lambda given, rank: given[0, rank], parts=True),
    "alltoall": Collective("Alltoall", lambda given, rank: given[:, rank], parts=True),
}


def of_size(name: str, size: int) -> str:
    return f"{name}, {with_unit(size)}"


# ---- one call -----------------------------------------------------------------------------------


def _method(ranks: Ranks, own: str, mpi: str) -> Any:
    if isinstance(ranks, Own):
        return getattr(ranks.world, own)
    from mpi4py import MPI

    return getattr(MPI.COMM_WORLD, mpi)


def _buffer(ranks: Ranks, array: Any) -> Any:
    """An array of 64-bit floats as the library takes it with the least cost."""
    if isinstance(ranks, Own):
        return array
    from mpi4py import MPI

    return [array, MPI.DOUBLE]


def checked(ranks: Ranks, name: str, size: int) -> Callable[[], Any]:
    """Return the call, which has had the right result once."""
    which, rank, items = COLLECTIVES[name], ranks.rank, size // 8
    given = np.arange(1.0, ranks.size**2 + 1).reshape(ranks.size, ranks.size)
    send = np.repeat(given[rank] if which.parts else given[rank, :1], items)
    expected = np.reshape(which.expected(given, rank), (-1, 1))
    recv = send if name == "bcast" else np.zeros(len(expected) * items)
    arrays = [_buffer(ranks, array) for array in ([send] if recv is send else [send, recv])]
    call = partial(_method(ranks, name, which.mpi), *arrays)
    call()
    if which.gets(rank) and not (recv.reshape(-1, items) == expected).all():
        raise SystemExit(f"{name} of {size} bytes: rank {rank} has got a wrong result")
    return call


def _times(ranks: Ranks, call: Callable[[], Any], count: int) -> list[float]:
    taken = []
    for _ in range(count):
        ranks.barrier()
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken


def median_us(ranks: Ranks, call: Callable[[], Any], seconds: float) -> float:
    """The median time of this rank; rank 0 decides how many calls there are."""
    start = time.perf_counter()
    _times(ranks, call, _TRIAL)
    each = (time.perf_counter() - start) / _TRIAL
    count = np.array([min(_MOST, max(_TRIAL, seconds / each))], np.float64)
    _method(ranks, "bcast", "Bcast")(_buffer(ranks, count))
    return statistics.median(_times(ranks, call, int(count[0]))) * 1e6


# ---- cases --------------------------------------------------------------------------------------


def _pin(ranks: Ranks) -> None:
    pin(ranks.rank % 2)


def barriers(ranks: Ranks, seconds: float) -> Figures:
    _pin(ranks)
    return {BARRIER: median_us(ranks, ranks.barrier, seconds)}


def crowded(ranks: Ranks, seconds: float) -> Figures:
    """The mean time of barriers one behind the other, with the ranks where the kernel has put them:
    a median would hide the times in which a rank waits for a core."""
    start = time.perf_counter()
    for _ in range(_TRIAL):
        ranks.barrier()
    each = (time.perf_counter() - start) / _TRIAL
    count = np.array([min(20 * _MOST, max(_TRIAL, 5 * seconds / each))], np.float64)
    _method(ranks, "bcast", "Bcast")(_buffer(ranks, count))
    start = time.perf_counter()
    for _ in range(int(count[0])):
        ranks.barrier()
    return {BARRIER: (time.perf_counter() - start) / int(count[0]) * 1e6}


def collectives(ranks: Ranks, seconds: float, names: str) -> Figures:
    """Calls with these names, separated by commas; those that a forced algorithm refuses have no
    figure."""
    _pin(ranks)
    figures = {}
    for name in names.split(","):
        for size in SIZES:
            try:
                call = checked(ranks, name, size)
            except ConfigError:
                continue
            figures[of_size(name, size)] = median_us(ranks, call, seconds)
    return figures


# A call of pscompy -> the one of mpi4py, the argument, and what two ranks get.
OBJECTS: dict[str, tuple[str, Any, Any]] = {
    "allreduce": ("allreduce", 1.0, 2.0),
    "allreduce_obj": ("allreduce", 1.0, 2.0),
    "bcast_obj": ("bcast", {"a": 1}, {"a": 1}),
}


def of_object(name: str) -> str:
    return f"{name}({OBJECTS[name][1]!r})"


def objects(ranks: Ranks, seconds: float) -> Figures:
    _pin(ranks)
    figures = {}
    for name, (mpi, given, expected) in OBJECTS.items():
        call = partial(_method(ranks, name, mpi), given)
        if call() != expected:
            raise SystemExit(f"{of_object(name)}: rank {ranks.rank} has got a wrong result")
        figures[of_object(name)] = median_us(ranks, call, seconds)
    return figures


def overlapped(ranks: Ranks, seconds: float) -> Figures:
    """The time in `wait` after a computation as long as the blocking call, in percent of that."""
    _pin(ranks)
    blocking = median_us(ranks, checked(ranks, "allreduce", OVERLAPPED), seconds) / 1e6
    send, recv = np.ones((2, OVERLAPPED // 8))
    begin = _method(ranks, "iallreduce", "Iallreduce")
    arrays = _buffer(ranks, send), _buffer(ranks, recv)
    matrix = np.ones(4 * K)
    steps = int(blocking / (median_us(ranks, lambda: np.sqrt(matrix), seconds) / 1e6))
    left = []
    for _ in range(5):
        ranks.barrier()
        request = begin(*arrays)
        for _ in range(steps):
            np.sqrt(matrix)
        start = time.perf_counter()
        ranks.wait_all([request])
        left.append(time.perf_counter() - start)
    if not (recv == ranks.size).all():
        raise SystemExit(f"iallreduce: rank {ranks.rank} has got a wrong result")
    return {BLOCKING: blocking * 1e6, LEFT: 100 * statistics.median(left) / blocking}
