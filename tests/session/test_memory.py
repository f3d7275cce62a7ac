"""The memory of many connections over shm follows their use."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from puppets import BOUND

from tests.waiting import expect_soon

COUNT = 100
USED = (8, 20_000, 100_000)  # bytes of the messages that each connection carries both ways
BAR = 64 << 10  # bytes of a connection that was used once and is idle


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))


def open_many(here, address, count):
    here.many = [here.session.connect(address) for _ in range(count)]
    for connection in here.many:
        connection.open()


def answer_each(here, sizes):
    for connection in here.many:
        for size in sizes:
            assert len(connection.recv()) == size
            connection.send(bytes(size))


def wait(here):
    here.c.recv()


def test_connections_that_were_used_once(connect):
    """The pages of their rings are given back while both processes only wait."""
    link = connect("shm")
    pids = (os.getpid(), link.peer.pid)
    gc.collect()
    before = [resident(pid) for pid in pids]
    link.peer.begin(open_many, str(link.sock.address), COUNT)
    many = [link.sock.accept(BOUND) for _ in range(COUNT)]
    link.peer.result()

    def each():
        return [(resident(pid) - was) / COUNT for pid, was in zip(pids, before, strict=True)]

    link.peer.begin(answer_each, USED)
    for connection in many:
        for size in USED:
            connection.send(bytes(size))
            assert len(connection.recv()) == size
    link.peer.result()
    print(each())
    link.peer.begin(wait)
    waiting = link.c.irecv()

    def released():
        with pytest.raises(TimeoutError):
            waiting.wait(0.05)
        return max(each()) <= BAR

    expect_soon(released, f"at most {BAR} bytes each")
    print(each())
    waiting.cancel()
    link.c.send(b"")
    link.peer.result()
    link.peer.begin(answer_each, (90_000,))
    for connection in many:
        connection.send(bytes(90_000))
        assert connection.recv() == bytes(90_000)
    link.peer.result()
