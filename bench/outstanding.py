"""A rank that has many long messages outstanding at once: FOLDER SECONDS. Rank 0 sends; rank 1 has
posted its receives before. The figures are written by rank 0."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from pscompy import World, wait_all

NUMBERS = (500, 2_000, 8_000)
SIZE = 20_000


def each(number: int) -> str:
    """The name of a cell."""
    return f"each of {number:,} outstanding"


def _round(world: World, buffers: np.ndarray) -> float:
    """Move one message per buffer; returns the seconds."""
    peer = 1 - world.rank
    receives = [world.irecv(buffer, peer) for buffer in buffers if world.rank == 1]
    world.barrier()
    start = time.perf_counter()
    wait_all(receives or [world.isend(buffer, peer) for buffer in buffers])
    world.barrier()
    return time.perf_counter() - start


def _measure(world: World, buffers: np.ndarray, seconds: float) -> float:
    """The median time of one message in microseconds; rank 0 decides when to stop."""
    _round(world, buffers)
    taken: list[float] = []
    more = np.ones(1, np.uint8)
    until = time.perf_counter() + seconds
    while more[0]:
        taken.append(_round(world, buffers))
        more[0] = time.perf_counter() < until
        world.broadcast(more)
    return statistics.median(taken) / len(buffers) * 1e6


def main(folder: str, seconds: str) -> None:
    memory = np.ones((max(NUMBERS), SIZE), np.uint8)
    share = float(seconds) / len(NUMBERS)
    with World() as world:
        figures = {each(number): _measure(world, memory[:number], share) for number in NUMBERS}
        (Path(folder) / str(world.rank)).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
