"""A rank that exchanges messages with all others: FOLDER LIBRARY SECONDS."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_SIZE, _ROUNDS = 1024, 20


@dataclass(frozen=True)
class Ranks:
    """A library's operations among ranks; sends and receives take (array, rank, tag)."""

    rank: int
    size: int
    send: Callable[..., Any]
    recv: Callable[..., Any]
    isend: Callable[..., Any]
    irecv: Callable[..., Any]
    wait_all: Callable[[list[Any]], Any]
    barrier: Callable[[], Any]


Library = Callable[[], AbstractContextManager[Ranks]]


@contextmanager
def _pscompy() -> Iterator[Ranks]:
    from pscompy import World, wait_all

    with World() as w:
        yield Ranks(w.rank, w.size, w.send, w.recv, w.isend, w.irecv, wait_all, w.barrier)


@contextmanager
def _mpi4py() -> Iterator[Ranks]:
    from mpi4py import MPI

    w = MPI.COMM_WORLD
    yield Ranks(w.rank, w.size, w.Send, w.Recv, w.Isend, w.Irecv, MPI.Request.Waitall, w.Barrier)


LIBRARIES: dict[str, Library] = {"pscompy": _pscompy, "mpi4py": _mpi4py}


def _exchange(ranks: Ranks, outgoing: Any, incoming: Any) -> None:
    """Send _ROUNDS messages to each other rank, and receive as many from each."""
    others = [rank for rank in range(ranks.size) if rank != ranks.rank]
    for _ in range(_ROUNDS):
        requests = [ranks.irecv(incoming[rank], rank, 0) for rank in others]
        requests += [ranks.isend(outgoing[rank], rank, 0) for rank in others]
        ranks.wait_all(requests)


def _measure(ranks: Ranks, seconds: float) -> float:
    """The messages per second of all ranks together; rank 0 decides when to stop."""
    outgoing, incoming = np.ones((2, ranks.size, _SIZE), np.uint8)
    more = np.ones(1, np.uint8)
    _exchange(ranks, outgoing, incoming)
    ranks.barrier()
    start, rounds = time.perf_counter(), 0
    while more[0]:
        _exchange(ranks, outgoing, incoming)
        rounds += _ROUNDS
        if ranks.rank == 0:
            more[0] = time.perf_counter() - start < seconds
            for other in range(1, ranks.size):
                ranks.send(more, other, 1)
        else:
            ranks.recv(more, 0, 1)
    return rounds * ranks.size * (ranks.size - 1) / (time.perf_counter() - start)


def main(folder: str, library: str, seconds: str) -> None:
    with LIBRARIES[library]() as ranks:
        rate = _measure(ranks, float(seconds))
        told = Path(folder) / f"{ranks.rank:03}"
        told.write_text(json.dumps({"messages_per_second": rate}))
        ranks.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
