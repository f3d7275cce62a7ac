"""The processes that `bench.gateways` measures: ranks in two modules, and a pair of sockets.

    gateways_rank.py PROGRAM NUMBER ...
    gateways_rank.py {serve,call} HOST PORT SIZE COUNT TURNS

PROGRAM is a function of this module that has a World; the figures that it returns are printed.
`serve` and `call` are blocking sockets, with which a TCP relay is measured as `pair` measures a
gateway.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterable

import pscompy

ROUNDS = 3  # the best round counts, because disturbances only make a round slower


# ---- two ranks, each in a module of its own ----


def pair(world: pscompy.World, size: int, count: int, turns: int) -> Iterable[float]:
    """At rank 0 the time of 8 bytes one way in us, and MB/s of `count` messages at once."""
    buffers = [bytearray(size) for _ in range(count)]
    best = min(_latency(world, turns) for _ in range(ROUNDS))
    most = max(_bandwidth(world, buffers) for _ in range(ROUNDS))
    return () if world.rank else (best, most)


def _latency(world: pscompy.World, turns: int) -> float:
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


def _bandwidth(world: pscompy.World, buffers: list[bytearray]) -> float:
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


# ---- a rank that sends to every rank of the other module ----


def all_to_all(world: pscompy.World, size: int, rounds: int) -> Iterable[float]:
    far = [rank for rank, it in enumerate(world.modules) if it != world.module]
    room = {rank: bytearray(size) for rank in far}
    for _ in range(rounds):
        receives = [world.irecv(room[rank], source=rank) for rank in far]
        pscompy.wait_all([world.isend(bytes(size), dest=rank) for rank in far])
        pscompy.wait_all(receives)
    return ()


# ---- two modules of two ranks, of which rank 2 stops receiving ----

STUCK = 32  # messages to the rank that does not receive
START, DATA, END, FOR_STOPPED, WHO = range(5)  # tags


def stalled(world: pscompy.World, size: int, count: int, rounds: int) -> Iterable[float]:
    """Rank 3 receives `count` messages from rank 0 and from rank 1, by turns without anything else,
    and while rank 2 is stopped by a signal and rank 0 sends to it. Four rates in MB/s, at rank 3:
    those from rank 0 and from rank 1 without, then with."""
    buffers = [bytearray(size) for _ in range(count)]
    figures = []
    for _ in range(rounds):
        without = [_rate(world, sender, buffers) for sender in (0, 1)]
        world.barrier()
        figures.append(without + _while_stopped(world, buffers))
    medians = [statistics.median(column) for column in zip(*figures[1:], strict=True)]
    return medians if world.rank == 3 else ()


def _rate(world: pscompy.World, sender: int, buffers: list[bytearray]) -> float:
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


def _while_stopped(world: pscompy.World, buffers: list[bytearray]) -> list[float]:
    """The rates while rank 2 does not receive the messages of rank 0."""
    sends = []
    if world.rank == 0:
        sends = [world.isend(it, dest=2, tag=FOR_STOPPED) for it in buffers[:STUCK]]
    elif world.rank == 2:
        world.send(b"%d" % os.getpid(), dest=3, tag=WHO)
        os.kill(os.getpid(), signal.SIGSTOP)
    stopped = int(world.recv(source=2, tag=WHO)) if world.rank == 3 else 0
    figures = [_rate(world, sender, buffers) for sender in (0, 1)]
    if stopped:
        os.kill(stopped, signal.SIGCONT)
    if world.rank == 2:
        for it in buffers[:STUCK]:
            world.recv(it, source=0, tag=FOR_STOPPED)
    pscompy.wait_all(sends)
    world.barrier()
    return figures


PROGRAMS: dict[str, Callable[..., Iterable[float]]] = {
    "pair": pair,
    "all": all_to_all,
    "stalled": stalled,
}


# ---- sockets ----

ROOM = 1 << 20


class Stream:
    """One end of a connection of blocking sockets."""

    def __init__(self, sock: socket.socket, serve: bool) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock, self._serve = sock, serve
        self._room = memoryview(bytearray(ROOM))

    def _take(self, count: int) -> None:
        while count:
            if (received := self._sock.recv_into(self._room[: min(count, ROOM)])) == 0:
                raise EOFError(f"the connection ended, {count} bytes are missing")
            count -= received

    def latency(self, turns: int) -> float:
        """The time of 8 bytes one way, in us."""
        begun = time.perf_counter()
        for _ in range(turns):
            if self._serve:
                self._take(8)
            self._sock.sendall(b"12345678")
            if not self._serve:
                self._take(8)
        return (time.perf_counter() - begun) / turns / 2 * 1e6

    def bandwidth(self, size: int, count: int) -> float:
        """The rate from the calling process to the serving one, in MB/s."""
        begun = time.perf_counter()
        if self._serve:
            self._take(size * count)
            self._sock.sendall(b"12345678")
        else:
            data = bytes(size)
            for _ in range(count):
                self._sock.sendall(data)
            self._take(8)
        return size * count / (time.perf_counter() - begun) / 1e6


def connect(serve: bool, host: str, port: int) -> socket.socket:
    if not serve:
        return socket.create_connection((host, port))
    with socket.create_server((host, port)) as listening:
        print("listening", flush=True)
        return listening.accept()[0]


def sockets(serve: bool, host: str, port: int, size: int, count: int, turns: int) -> None:
    with connect(serve, host, port) as sock:
        stream = Stream(sock, serve)
        best = min(stream.latency(turns) for _ in range(ROUNDS))
        most = max(stream.bandwidth(size, count) for _ in range(ROUNDS))
    if not serve:
        print(best, most)


def main(program: str, *words: str) -> None:
    if program not in PROGRAMS:
        host, *numbers = words
        sockets(program == "serve", host, *map(int, numbers))
        return
    with pscompy.World() as world:
        figures = PROGRAMS[program](world, *map(int, words))
    if figures:
        print(*figures)


if __name__ == "__main__":
    main(*sys.argv[1:])
