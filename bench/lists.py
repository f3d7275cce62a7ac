"""Two processes that exchange a list of arrays as one object: FOLDER LIBRARY SECONDS. The first one
writes the figures."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

COUNT = 1_000
SIZES = (128, 1_024, 8_192)  # bytes of an array
_TRIAL = 3

# The rank, and the operations of a library with the other process.
End = tuple[int, Callable[[Any], Any], Callable[[], Any]]


def one_way(size: int) -> str:
    """The name of a cell."""
    return f"list of {COUNT:,} arrays of {size:,} B"


@contextmanager
def _pscompy() -> Iterator[End]:
    from pscompy import World

    with World() as world:
        peer = world[1 - world.rank]
        yield world.rank, peer.send_obj, peer.recv_obj


@contextmanager
def _mpi4py(pkl5: bool) -> Iterator[End]:
    from mpi4py import MPI
    from mpi4py.util import pkl5 as module

    world = module.Intracomm(MPI.COMM_WORLD) if pkl5 else MPI.COMM_WORLD
    peer = 1 - world.rank
    yield world.rank, lambda obj: world.send(obj, peer), lambda: world.recv(source=peer)


@contextmanager
def _pipe() -> Iterator[End]:
    fork = multiprocessing.get_context("fork")
    own, other = fork.Pipe()
    child = fork.Process(target=_measure, args=((1, other.send, other.recv), 0.0))
    child.start()
    yield 0, own.send, own.recv
    child.join()


_LIBRARIES: dict[str, Callable[[], Any]] = {
    "pscompy": _pscompy,
    "mpi4py": lambda: _mpi4py(False),
    "pkl5": lambda: _mpi4py(True),
    "multiprocessing": _pipe,
}


def _rounds(end: End, obj: Any, count: int) -> list[float]:
    """The seconds of each round trip."""
    rank, send, recv = end
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        if rank == 0:
            send(obj)
        recv()
        if rank == 1:
            send(obj)
        taken.append(time.perf_counter() - start)
    return taken


def _one_way(end: End, obj: Any, seconds: float) -> float:
    """Microseconds; the first process decides how many round trips there are."""
    rank, send, recv = end
    trial = statistics.median(_rounds(end, obj, _TRIAL))
    if rank == 0:
        count = max(_TRIAL, int(seconds / trial))
        send(count)
    else:
        count = recv()
    return statistics.median(_rounds(end, obj, count)) / 2 * 1e6


def _measure(end: End, seconds: float) -> dict[str, float]:
    return {
        one_way(size): _one_way(end, [np.ones(size // 8) for _ in range(COUNT)], seconds)
        for size in SIZES
    }


def main(folder: str, library: str, seconds: str) -> None:
    with _LIBRARIES[library]() as end:
        figures = _measure(end, float(seconds))
        if end[0] == 0:
            (Path(folder) / "figures").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
