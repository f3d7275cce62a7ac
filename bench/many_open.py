"""Two ranks that exchange messages of 8 B while other connections are open between them:
FOLDER TRANSPORT SECONDS. The figures are written by rank 0."""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from bench.native import cores
from pscompy import Connection, World

OPEN = (0, 100, 1_000)
_TRIAL, _BATCHES = 200, 9
_DESCRIPTORS = 8192


def one_way(transport: str, number: int) -> str:
    """The name of a cell."""
    return f"{transport}, 8 B one way, {number:,} others open"


class Pair:
    """A connection of two ranks, and the others between them."""

    def __init__(self, world: World, transport: str) -> None:
        self._world = world
        self._first = world.rank == 0
        self._connection = world[1 - world.rank]
        self._connection.open()
        if self._connection.transport != transport:
            raise SystemExit(f"connected over {self._connection.transport}, not {transport}")
        self._outgoing, self._incoming = np.zeros((2, 1), np.int64)
        self._others: list[Connection] = []

    def open(self, number: int) -> None:
        """Open others until there are as many."""
        with self._world.session.listen("127.0.0.1") as socket:
            address = self._address(socket.address)
            while len(self._others) < number:
                if self._first:
                    connection = self._world.session.connect(address)
                    connection.open()
                else:
                    connection = socket.accept()
                self._others.append(connection)
            self._world.barrier()

    def _address(self, own: str) -> str:
        """The address of rank 1, at rank 0."""
        if self._first:
            return self._connection.recv().decode()
        self._connection.send(own.encode())
        return own

    def close(self) -> None:
        for connection in self._others:
            connection.close()

    def one_way(self, seconds: float) -> float:
        """The microseconds of a message; rank 0 decides how many there are."""
        taken = self._round_trips(_TRIAL)
        self._outgoing[0] = max(_TRIAL, int(seconds / _BATCHES / taken * _TRIAL))
        self._round_trips(1)
        count = int((self._outgoing if self._first else self._incoming)[0])
        batches = [self._round_trips(count) for _ in range(_BATCHES)]
        return statistics.median(batches) / count / 2 * 1e6

    def _round_trips(self, count: int) -> float:
        send, recv = self._connection.send, self._connection.recv
        start = time.perf_counter()
        if self._first:
            for _ in range(count):
                send(self._outgoing)
                recv(self._incoming)
        else:
            for _ in range(count):
                recv(self._incoming)
                send(self._outgoing)
        return time.perf_counter() - start


def main(folder: str, transport: str, seconds: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, _DESCRIPTORS), most))
    with World() as world:
        os.sched_setaffinity(0, {cores()[world.rank]})
        pair = Pair(world, transport)
        figures = {}
        for number in OPEN:
            pair.open(number)
            figures[one_way(transport, number)] = pair.one_way(float(seconds))
        (Path(folder) / f"{world.rank:03}").write_text(json.dumps(figures))
        world.barrier()
        pair.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
