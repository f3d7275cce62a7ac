"""A rank of `bench.gateways`, in two modules of two ranks, of which rank 2 stops receiving.

    gateways_stalled.py SIZE COUNT ROUNDS

Rank 3 receives COUNT messages of SIZE bytes from rank 0 and from rank 1, by turns without anything
else, and while rank 2 is stopped by a signal and rank 0 sends to it. It prints four rates in MB/s:
those from rank 0 and from rank 1 without, then with.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time

import pscompy

STUCK = 32  # messages to the rank that does not receive
START, DATA, END, FOR_STOPPED, WHO = range(5)  # tags


def rate(world: pscompy.World, sender: int, buffers: list[bytearray]) -> float:
    """The rate from `sender` to rank 3, in MB/s; only rank 3 returns it."""
    begun = time.perf_counter()
    if world.rank == sender:
        world.recv(source=3, tag=START)
        pscompy.wait_all([world.isend(it, dest=3, tag=DATA) for it in buffers])
        world.recv(source=3, tag=END)
    elif world.rank == 3:
        world.send(b"", dest=sender, tag=START)
        begun = time.perf_counter()
        pscompy.wait_all([world.irecv(it, source=sender, tag=DATA) for it in buffers])
        world.send(b"", dest=sender, tag=END)
    return sum(map(len, buffers)) / (time.perf_counter() - begun) / 1e6


def while_stopped(world: pscompy.World, buffers: list[bytearray]) -> list[float]:
    """The rates while rank 2 does not receive the messages of rank 0."""
    sends = []
    if world.rank == 0:
        sends = [world.isend(it, dest=2, tag=FOR_STOPPED) for it in buffers[:STUCK]]
    elif world.rank == 2:
        world.send(b"%d" % os.getpid(), dest=3, tag=WHO)
        os.kill(os.getpid(), signal.SIGSTOP)
    stopped = int(world.recv(source=2, tag=WHO)) if world.rank == 3 else 0
    figures = [rate(world, sender, buffers) for sender in (0, 1)]
    if stopped:
        os.kill(stopped, signal.SIGCONT)
    if world.rank == 2:
        for it in buffers[:STUCK]:
            world.recv(it, source=0, tag=FOR_STOPPED)
    pscompy.wait_all(sends)
    world.barrier()
    return figures


def main(size: int, count: int, rounds: int) -> None:
    buffers = [bytearray(size) for _ in range(count)]
    figures = []
    with pscompy.World() as world:
        for _ in range(rounds):
            without = [rate(world, sender, buffers) for sender in (0, 1)]
            world.barrier()
            figures.append(without + while_stopped(world, buffers))
        if world.rank == 3:
            print(*(statistics.median(column) for column in zip(*figures[1:], strict=True)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
