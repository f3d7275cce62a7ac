"""Cases of ranks that have much to do at once: many ranks, receives, messages or threads."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.libraries import Own
from bench.native import pin, resident
from bench.rows import Figures
from pscompy.cli.libraries import Ranks

# ---- all to all ---------------------------------------------------------------------------------

RATE = "messages of 1 KiB"
_SIZE, _ROUNDS = 1024, 20


def _others(ranks: Ranks) -> list[int]:
    return [rank for rank in range(ranks.size) if rank != ranks.rank]


def _swap(ranks: Ranks, outgoing: Any, incoming: Any, others: list[int]) -> None:
    """Send a message to each of the others, and receive one from each."""
    requests = [ranks.irecv(incoming[rank], rank, 0) for rank in others]
    requests += [ranks.isend(outgoing[rank], rank, 0) for rank in others]
    ranks.wait_all(requests)


def _swaps(ranks: Ranks, outgoing: Any, incoming: Any) -> None:
    others = _others(ranks)
    for _ in range(_ROUNDS):
        _swap(ranks, outgoing, incoming, others)


def all_to_all(ranks: Ranks, seconds: float) -> Figures | None:
    """Millions of messages per second of all ranks together; rank 0 decides when to stop."""
    outgoing, incoming = np.ones((2, ranks.size, _SIZE), np.uint8)
    more = np.ones(1, np.uint8)
    _swaps(ranks, outgoing, incoming)
    ranks.barrier()
    start, rounds = time.perf_counter(), 0
    while more[0]:
        _swaps(ranks, outgoing, incoming)
        rounds += _ROUNDS
        if ranks.rank == 0:
            more[0] = time.perf_counter() - start < seconds
            for other in _others(ranks):
                ranks.send(more, other, 1)
        else:
            ranks.recv(more, 0, 1)
    rate = rounds * ranks.size * (ranks.size - 1) / (time.perf_counter() - start)
    ranks.barrier()
    return {RATE: rate / 1e6} if ranks.rank == 0 else None


def first_messages(
    ranks: Ranks, seconds: float, name: str, scale: str, star: str = ""
) -> Figures | None:
    """The seconds until a message has come from and gone to each of the others, for the first time,
    times `scale`. With `star` only rank 0 exchanges one with each, and has the figure."""
    outgoing, incoming = np.ones((2, ranks.size, 8), np.uint8)
    others = [0] if star and ranks.rank else _others(ranks)
    ranks.barrier()
    start = time.perf_counter()
    _swap(ranks, outgoing, incoming, others)
    taken = time.perf_counter() - start
    ranks.barrier()  # a file would delay the ranks that still connect
    return None if star and ranks.rank else {name: taken * float(scale)}


# ---- matching -----------------------------------------------------------------------------------

POSTED, UNEXPECTED = "posted", "unexpected"
MEMORY = "memory of an outstanding irecv"
MANY = 100_000
NUMBERS = (1, 1_000, 10_000, MANY)
_PEER_NUMBERS = NUMBERS[:3]  # a peer would take minutes for more
_BALL, _READY = 1, 2  # tags; those of the messages that wait begin at _FIRST
_FIRST = 10
_TRIAL = 20
_MEASURABLE = 10_000  # receives; the memory of fewer is lost among pages


def among(what: str, number: int) -> str:
    return f"8 B one way, {number:,} {what}"


def to_any(number: int) -> str:
    return f"a message to any of {number:,} posted"


class _Pair:
    """This rank and the other one; each message has 8 bytes."""

    def __init__(self, ranks: Ranks, seconds: float) -> None:
        self._ranks = ranks
        self._seconds = seconds
        self._peer = ranks.peer
        self._out, self._in = np.zeros((2, 1), np.int64)
        self.figures: Figures = {}

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
        self.figures[among(POSTED, number)] = self.ping_pong()
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
        self.figures[among(UNEXPECTED, number)] = self.ping_pong()
        for tag in range(_FIRST, _FIRST + number):
            self.receive(tag)
        self._ranks.barrier()


def matching(ranks: Ranks, seconds: float) -> Figures | None:
    pin(ranks.rank)
    pair = _Pair(ranks, seconds)
    for number in NUMBERS if isinstance(ranks, Own) else _PEER_NUMBERS:
        pair.posted(number)
        pair.unexpected(number)
    return pair.figures if ranks.rank == 0 else None


# ---- many long messages at once -----------------------------------------------------------------

OUTSTANDING = (500, 2_000, 8_000)
LONG = 20_000  # bytes


def each(number: int) -> str:
    return f"each of {number:,} outstanding"


def _round(own: Own, buffers: np.ndarray) -> float:
    """Move one message per buffer from rank 0, whose receives are posted before; returns the
    seconds."""
    receives = [own.irecv(buffer, own.peer) for buffer in buffers if own.rank == 1]
    own.barrier()
    start = time.perf_counter()
    own.wait_all(receives or [own.isend(buffer, own.peer) for buffer in buffers])
    own.barrier()
    return time.perf_counter() - start


def _median_of_rounds(own: Own, buffers: np.ndarray, seconds: float) -> float:
    """The median time of one message in microseconds; rank 0 decides when to stop."""
    _round(own, buffers)
    taken: list[float] = []
    more = np.ones(1, np.uint8)
    until = time.perf_counter() + seconds
    while more[0]:
        taken.append(_round(own, buffers))
        more[0] = time.perf_counter() < until
        own.world.broadcast(more)
    return statistics.median(taken) / len(buffers) * 1e6


def outstanding(own: Own, seconds: float) -> Figures | None:
    memory = np.ones((max(OUTSTANDING), LONG), np.uint8)
    share = seconds / len(OUTSTANDING)
    figures = {each(it): _median_of_rounds(own, memory[:it], share) for it in OUTSTANDING}
    return figures if own.rank == 0 else None


# ---- threads ------------------------------------------------------------------------------------

THREADS = (1, 2, 4, 8)
_SHORT, _BATCH, _STOP = 8, 100, 0


def by_threads(number: int) -> str:
    return f"ping-pongs by {number} threads"


def _ping_pong(ranks: Ranks, tag: int, until: float, rounds: list[int], size: int) -> None:
    """Exchange messages until it is time; the first byte of rank 0's last one says so."""
    outgoing, incoming = np.ones((2, size), np.uint8)
    data, room = ranks.buffer(outgoing), ranks.buffer(incoming)
    batch = _BATCH if size == _SHORT else 1
    while outgoing[0] != _STOP:
        for _ in range(batch - 1):
            _exchange(ranks, data, room, tag)
        if ranks.rank == 0 and time.perf_counter() > until:
            outgoing[0] = _STOP
        _exchange(ranks, data, room, tag)
        if ranks.rank == 1 and incoming[0] == _STOP:
            outgoing[0] = _STOP
        rounds[tag] += batch


def _exchange(ranks: Ranks, data: Any, room: Any, tag: int) -> None:
    if ranks.rank == 0:
        ranks.send(data, 1, tag)
        ranks.recv(room, 1, tag)
    else:
        ranks.recv(room, 0, tag)
        ranks.send(data, 0, tag)


def ping_pongs(ranks: Ranks, number: int, seconds: float, size: int = _SHORT) -> float:
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


def threads(ranks: Ranks, seconds: float) -> Figures | None:
    """Threads that share the library, with a tag of their own each."""
    ping_pongs(ranks, 1, 0)
    share = seconds / len(THREADS)
    figures = {by_threads(number): ping_pongs(ranks, number, share) for number in THREADS}
    return figures if ranks.rank == 0 else None
