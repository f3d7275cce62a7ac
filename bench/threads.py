"""A rank whose threads exchange objects: WAY THREADS SECONDS SIZES; rank 0 prints MB/s as JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from bench import objects
from pscompy import Communicator, World
from pscompy.cli.measure import LATENCY, Calls, Job

_WAYS: dict[str, Callable[..., Calls]] = {
    "in-band": objects.in_band,
    "pointer chunks": objects.plain,
    "registered chunks": objects.registered,
    "lent": objects.lent,
}


def _exchange(comm: Any, calls: Calls, count: int) -> None:
    order = (calls.send, calls.recv) if comm.rank == 0 else (calls.recv, calls.send)
    for _ in range(count):
        for call in order:
            call()


def exchanged(
    comms: list[Communicator], make: Callable[..., Calls], size: int, count: int
) -> float:
    """The seconds that all threads took together, each with a communicator of its own."""
    jobs = [
        (comm, make(comm, comm[1 - comm.rank], Job(LATENCY, size, count, 1)), count)
        for comm in comms
    ]
    threads = [threading.Thread(target=_exchange, args=job) for job in jobs]
    comms[0].barrier()
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def main(way: str, threads: str, seconds: str, sizes: str) -> None:
    make = _WAYS[way]
    figures = {}
    with World() as world:
        comms: list[Communicator] = [world, *(world.dup() for _ in range(int(threads) - 1))]
        for size in map(int, sizes.split(",")):
            once = exchanged(comms, make, size, 3) / 3
            world.send_obj(once, 1 - world.rank)
            count = max(3, int(float(seconds) / max(once, world.recv_obj())))
            taken = exchanged(comms, make, size, count)
            figures[size] = 2 * count * len(comms) * size / taken / 1e6
    if world.rank == 0:
        json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
