"""Lazy connections: opened on first use, also by both sides at once, and never before."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from puppets import BOUND, ONLY, listen

import pscompy
from tests.program import program
from tests.waiting import expect_soon

PACKAGES = str(Path(pscompy.__file__).parents[1])
CONNECTIONS = int(os.environ.get("PSCOMPY_TEST_CONNECTIONS", "1000"))
WORLDS = int(os.environ.get("PSCOMPY_TEST_WORLDS", "5"))


def run_world(source, ranks, timeout=280, **environ):
    """Run `source` as a job of `ranks` ranks; returns its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pscompy", "run", "-n", str(ranks), "-c", source],
        env={**os.environ, "PYTHONPATH": PACKAGES, **environ},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def connections_up(peer):
    return peer(lambda here: here.session.stats["connections_up"])


def test_only_the_used_ones_are_made(transport, start, open_session):
    """The session declares 200 connections to 4 peers and opens only the 7 that are used."""
    peers = [start(ONLY[transport]) for _ in range(4)]
    addresses = [peer(listen) for peer in peers]
    session = open_session(**ONLY[transport])
    threads = set(threading.enumerate())
    before = set(os.listdir("/proc/self/fd"))
    declared = [session.connect(addresses[i % 4]) for i in range(200)]
    assert {c.state for c in declared} == {pscompy.ConnectionState.LAZY}
    assert {c.transport for c in declared} == {""}
    assert set(os.listdir("/proc/self/fd")) <= before
    assert set(threading.enumerate()) <= threads
    used = declared[::30]
    for c in used:
        c.send(b"used")
        c.open(BOUND)
    assert session.stats["connections_up"] == len(used)
    expect_soon(lambda: sum(map(connections_up, peers)) == len(used))
    assert [c for c in declared if c.state is not pscompy.ConnectionState.LAZY] == used


def answer_sixty(here):
    accepted = [here.sock.accept(60) for _ in range(60)]
    for d in accepted:
        d.send(d.recv() * 2)


def test_many_connections_between_two(transport, start, open_session):
    """All 60 connections are used; each keeps its own messages."""
    peer = start(ONLY[transport])
    address = peer(listen)
    session = open_session(**ONLY[transport])
    connections = [session.connect(address) for _ in range(60)]
    for i, c in enumerate(connections):
        c.send(i.to_bytes(4, "little"))
    peer.begin(answer_sixty)
    for i, c in enumerate(connections):
        assert c.recv(timeout=BOUND) == i.to_bytes(4, "little") * 2
    peer.result()


def meet_all(here, address):
    def meet(n):
        mine = [here.session.connect(address) for _ in range(n)]
        for c in mine:
            c.send(b"ping")
        for _ in range(n):
            d = here.sock.accept(60)
            assert d.recv() == b"ping"
            d.send(b"pong")
            theirs.append(d)
        assert [bytes(c.recv()) for c in mine] == [b"pong"] * n
        return mine

    theirs = []
    kept = [meet(n) for n in (1, 1, 2, 5, 20)]
    return len(theirs), sum(map(len, kept))


def test_both_connect_at_once(transport, start):
    """Each side connects to the other's socket, repeatedly: every connection opens and works."""
    one, two = start(ONLY[transport]), start(ONLY[transport])
    addresses = [peer(listen) for peer in (one, two)]
    one.begin(meet_all, address=addresses[1])
    two.begin(meet_all, address=addresses[0])
    assert one.result() == two.result() == (29, 29)


def serve_until_end(here):
    """Answer a message of each connection; returns how many, when a message ends this."""
    answered = 0
    while (d := here.sock.accept(BOUND)).recv() != b"end":
        d.send(b"answer")
        d.close()
        answered += 1
    return answered


def ask_often(here, address, count):
    for _ in range(count):
        c = here.session.connect(address)
        c.send(b"question")
        assert c.recv(timeout=60) == b"answer"
        c.close()
    gc.collect()


def test_connections_that_end_and_begin_again(transport, start):
    """Every one of many short connections is answered, and none leaves anything behind."""
    server, client = start(ONLY[transport]), start(ONLY[transport])
    address = server(listen)
    server.begin(serve_until_end)
    sizes, each = [], CONNECTIONS // 4

    def resident():
        return server.resident() + client.resident()

    for _ in range(4):
        client.begin(ask_often, address, each)
        client.result(timeout=200)
        sizes.append(resident())
    client(lambda here, address: here.session.connect(address).send(b"end"), address=address)
    assert server.result() == 4 * each
    # Half of the connections have ended since sizes[1], the last of them only a moment ago.
    expect_soon(lambda: resident() - sizes[1] < 4 << 20)


def send_to_all(rounds):
    import pscompy

    for round in range(rounds):
        with pscompy.World() as world:
            for peer in range(world.size):
                if peer != world.rank:
                    world.isend(b"%d" % world.rank, peer, tag=round)
            for _ in range(world.size - 1):
                message, status = world.recv_status(tag=round)
                assert message == b"%d" % status.source, (message, status)
            world.barrier()
            if round == rounds - 1:
                print(world.stats["connections_up"])


@pytest.mark.timeout(300)
def test_simultaneous_first_sends(transport):
    """All ranks send to all others as their first call, in one world after the other."""
    names = {"shm": "TCP", "tcp": "SHM"}
    ranks = 6
    printed = run_world(
        program(send_to_all, WORLDS), ranks, 280, **{f"PSP_{names[transport]}": "0"}
    )
    made = [int(line) for line in printed.split()]
    assert len(made) == ranks
    assert sum(made) == ranks * (ranks - 1)  # each pair has one connection, which both ends count


def ring():
    import pscompy

    with pscompy.World() as world:
        right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        for _ in range(10):
            assert world.sendrecv(b"%d" % world.rank, right, source=left) == b"%d" % left
        print(world.stats["connections_up"])


@pytest.mark.timeout(300)
def test_a_ring_of_many(transport):
    """16 ranks in a ring make 16 connections, which both ends count, and not all 120."""
    names = {"shm": "TCP", "tcp": "SHM"}
    printed = run_world(program(ring), 16, 280, **{f"PSP_{names[transport]}": "0"})
    made = [int(line) for line in printed.split()]
    assert made == [2] * 16


def race(rounds):
    import json
    import threading

    import pscompy

    for _ in range(rounds):
        with pscompy.World() as world:
            other, go = 1 - world.rank, threading.Barrier(4)

            def use(i, world=world, other=other, go=go):
                go.wait()
                world.send(b"%d" % i, other, tag=i)

            threads = [threading.Thread(target=use, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            got = sorted(int(world.recv(source=other, tag=i)) for i in range(4))
            for thread in threads:
                thread.join()
            print(json.dumps([got, world.stats["connections_up"]]), flush=True)


def test_threads_race_for_the_first_send():
    """Four threads on each side use a connection for the first time together, in one world after
    the other; only one is opened."""
    printed = run_world(program(race, WORLDS), 2).splitlines()
    assert [json.loads(line) for line in printed] == [[[0, 1, 2, 3], 1]] * (2 * WORLDS)
