"""A rank whose threads share its session and exchange messages of 8 B with the threads of the other
rank: FOLDER LIBRARY SECONDS. The figures are written by rank 0."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

THREADS = (1, 2, 4, 8)
_SIZE, _ROUNDS, _STOP = 8, 100, 0


class Ranks(NamedTuple):
    """A library's operations between two ranks; both take (array, tag)."""

    rank: int
    send: Callable[[Any, int], Any]
    recv: Callable[[Any, int], Any]


def rate(threads: int) -> str:
    """The name of a cell."""
    return f"ping-pongs by {threads} threads"


@contextmanager
def _pscompy() -> Iterator[Ranks]:
    from pscompy import World

    with World() as w:
        peer = 1 - w.rank
        yield Ranks(
            w.rank,
            lambda it, tag: w.send(it, peer, tag),
            lambda it, tag: w.recv(it, peer, tag),
        )


@contextmanager
def mpi4py() -> Iterator[Ranks]:
    from mpi4py import MPI

    w = MPI.COMM_WORLD
    peer = 1 - w.rank
    yield Ranks(
        w.rank,
        lambda it, tag: w.Send([it, MPI.BYTE], peer, tag),
        lambda it, tag: w.Recv([it, MPI.BYTE], peer, tag),
    )


def _ping_pong(ranks: Ranks, tag: int, until: float, rounds: list[int], size: int) -> None:
    """Exchange messages until it is time; the first byte of rank 0's last one says so."""
    outgoing, incoming = np.ones((2, size), np.uint8)
    batch = _ROUNDS if size == _SIZE else 1
    while outgoing[0] != _STOP:
        for _ in range(batch - 1):
            _exchange(ranks, outgoing, incoming, tag)
        if ranks.rank == 0 and time.perf_counter() > until:
            outgoing[0] = _STOP
        _exchange(ranks, outgoing, incoming, tag)
        if ranks.rank == 1 and incoming[0] == _STOP:
            outgoing[0] = _STOP
        rounds[tag] += batch


def _exchange(ranks: Ranks, outgoing: Any, incoming: Any, tag: int) -> None:
    if ranks.rank == 0:
        ranks.send(outgoing, tag)
        ranks.recv(incoming, tag)
    else:
        ranks.recv(incoming, tag)
        ranks.send(outgoing, tag)


def measure(ranks: Ranks, number: int, seconds: float, size: int = _SIZE) -> float:
    """The messages per second of all threads together, in millions."""
    start = time.perf_counter()
    rounds = [0] * number
    threads = [
        threading.Thread(target=_ping_pong, args=(ranks, tag, start + seconds, rounds, size))
        for tag in range(number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 2 * sum(rounds) / (time.perf_counter() - start) / 1e6


def main(folder: str, library: str, seconds: str) -> None:
    with {"pscompy": _pscompy, "mpi4py": mpi4py}[library]() as ranks:
        measure(ranks, 1, 0)
        share = float(seconds) / len(THREADS)
        figures = {rate(number): measure(ranks, number, share) for number in THREADS}
        (Path(folder) / str(ranks.rank)).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
