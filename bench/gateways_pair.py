"""One of the two ranks that `bench.gateways` times, each in a module of its own.

    gateways_pair.py SIZE COUNT TURNS

Rank 0 prints the time of 8 bytes one way in us, and MB/s of COUNT messages of SIZE bytes at once.
"""

from __future__ import annotations

import sys
import time

import pscompy

ROUNDS = 3  # the best round counts, because disturbances only make a round slower


def latency(world: pscompy.World, turns: int) -> float:
    """The time of 8 bytes one way, in us."""
    other, small = 1 - world.rank, bytearray(8)
    begun = time.perf_counter()
    for _ in range(turns):
        if world.rank:
            world.recv(small, source=other)
        world.send(small, dest=other)
        if not world.rank:
            world.recv(small, source=other)
    return (time.perf_counter() - begun) / turns / 2 * 1e6


def bandwidth(world: pscompy.World, buffers: list[bytearray]) -> float:
    """The rate from rank 0 to rank 1, in MB/s."""
    other, small = 1 - world.rank, bytearray(8)
    begun = time.perf_counter()
    if world.rank:
        pscompy.wait_all([world.irecv(it, source=other) for it in buffers])
        world.send(small, dest=other)
    else:
        pscompy.wait_all([world.isend(it, dest=other) for it in buffers])
        world.recv(small, source=other)
    return sum(map(len, buffers)) / (time.perf_counter() - begun) / 1e6


def main(size: int, count: int, turns: int) -> None:
    buffers = [bytearray(size) for _ in range(count)]
    with pscompy.World() as world:
        best = min(latency(world, turns) for _ in range(ROUNDS))
        most = max(bandwidth(world, buffers) for _ in range(ROUNDS))
        if not world.rank:
            print(best, most)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
