"""Two ranks that exchange messages while many others wait: FOLDER LIBRARY SECONDS."""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.alltoall import LIBRARIES, Ranks
from bench.native import cores

POSTED, UNEXPECTED = "posted", "unexpected"
MEMORY = "memory of an outstanding irecv"
MANY = 100_000
NUMBERS = (1, 1_000, 10_000, MANY)
_PEER_NUMBERS = NUMBERS[:3]  # a peer would take minutes for more
_BALL, _READY = 1, 2  # tags; those of the messages that wait begin at _FIRST
_FIRST = 10
_TRIAL = 20
_MEASURABLE = 10_000  # receives; the memory of fewer is lost among pages


def one_way(what: str, number: int) -> str:
    return f"8 B one way, {number:,} {what}"


def to_any(number: int) -> str:
    return f"a message to any of {number:,} posted"


class Pair:
    """This rank and the other one; each message has 8 bytes."""

    def __init__(self, ranks: Ranks, seconds: float) -> None:
        self._ranks = ranks
        self._seconds = seconds
        self._peer = 1 - ranks.rank
        self._out, self._in = np.zeros((2, 1), np.int64)
        self.figures: dict[str, float] = {}

    def send(self, tag: int, value: int = 0) -> None:
        self._out[0] = value
        self._ranks.send(self._out, self._peer, tag)

    def receive(self, tag: int) -> int:
        self._ranks.recv(self._in, self._peer, tag)
        return int(self._in[0])

    def _round_trips(self, count: int) -> float:
        calls: list[Callable[[int], Any]] = [self.send, self.receive]
        first, second = calls if self._ranks.rank == 0 else reversed(calls)
        start = time.perf_counter()
        for _ in range(count):
            first(_BALL)
            second(_BALL)
        return time.perf_counter() - start

    def ping_pong(self) -> float:
        """The microseconds of a message one way; rank 0 decides how many there are."""
        taken = self._round_trips(_TRIAL)
        if self._ranks.rank == 0:
            count = max(_TRIAL, int(self._seconds / taken * _TRIAL))
            self.send(_READY, count)
        else:
            count = self.receive(_READY)
        return self._round_trips(count) / count / 2 * 1e6

    def posted(self, number: int) -> None:
        """Receives wait on both sides; then their messages are sent in random order."""
        tags = list(range(_FIRST, _FIRST + number))
        before = resident()
        requests = [self._ranks.irecv(self._in, self._peer, tag) for tag in tags]
        if number >= _MEASURABLE:
            self.figures[MEMORY] = (resident() - before) / number
        self._ranks.barrier()
        self.figures[one_way(POSTED, number)] = self.ping_pong()
        random.shuffle(tags)
        for turn in (0, 1):
            self._ranks.barrier()
            start = time.perf_counter()
            if turn == self._ranks.rank:
                for tag in tags:
                    self.send(tag)
            else:
                self._ranks.wait_all(requests)
                taken = time.perf_counter() - start
                self.figures[to_any(number)] = taken / number * 1e6

    def unexpected(self, number: int) -> None:
        """Messages without a receive wait on both sides."""
        for turn in (0, 1):
            if turn == self._ranks.rank:
                for tag in range(_FIRST, _FIRST + number):
                    self.send(tag)
                self.send(_READY)
            else:
                self.receive(_READY)
        self.figures[one_way(UNEXPECTED, number)] = self.ping_pong()
        for tag in range(_FIRST, _FIRST + number):
            self.receive(tag)
        self._ranks.barrier()


def resident() -> int:
    """The bytes of this process that are in memory."""
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))


def main(folder: str, library: str, seconds: str) -> None:
    with LIBRARIES[library]() as ranks:
        os.sched_setaffinity(0, {cores()[ranks.rank]})
        pair = Pair(ranks, float(seconds))
        for number in NUMBERS if library == "pscompy" else _PEER_NUMBERS:
            pair.posted(number)
            pair.unexpected(number)
        (Path(folder) / f"{ranks.rank:03}").write_text(json.dumps(pair.figures))
        ranks.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
