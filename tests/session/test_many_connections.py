"""A server that runs for months: connections that have ended leave nothing behind."""

from __future__ import annotations

import gc
import os
import threading

import pytest
from puppets import BOUND, ONLY, listen, own_descriptors

import pscompy
from tests.waiting import expect_soon

CONNECTIONS = int(os.environ.get("PSCOMPY_TEST_CONNECTIONS", "1000"))
SLACK = 4 << 20  # bytes that a process may grow by chance; 600 leaked connections would be 6 MB


def connections():
    return sum(isinstance(it, pscompy.Connection) for it in gc.get_objects())


def measure(here):
    return connections(), own_descriptors()


def open_other(here):
    """Prepare `cycles`."""
    gc.collect()
    gc.disable()  # no connection waits for the garbage collector
    here.other = pscompy.Session(config=here.config)
    listen(here)


def cycles(here, n):
    for _ in range(n):
        c = here.other.connect(here.sock.address)
        c.send(b"question")
        s = here.sock.accept(timeout=60)
        assert s.recv() == b"question"
        s.isend(b"answer")
        assert c.recv(timeout=60) == b"answer"
        c.close()
        try:
            s.recv(timeout=60)
        except pscompy.Closed:
            continue
        raise AssertionError("it is still open")


def settled(peer, connections, descriptors):
    """Wait until only these connections and descriptors are left; returns the resident memory,
    which may still shrink."""
    expect_soon(lambda: peer(measure) == (connections, descriptors))
    return peer.resident()


@pytest.mark.timeout(700)
def test_thousands_of_connections(transport, start):
    """Connections between two sessions are opened, used and closed; none needs the garbage
    collector."""
    peer = start(ONLY[transport])
    peer(open_other)
    peer.begin(cycles, 400)
    peer.result(timeout=300)
    expect_soon(lambda: peer(measure)[0] == 0)
    descriptors = peer(measure)[1]
    before = settled(peer, 0, descriptors)
    peer.begin(cycles, CONNECTIONS - 400)
    peer.result(timeout=300)
    after = settled(peer, 0, descriptors)
    expect_soon(lambda: peer.resident() - before < SLACK, f"less memory than {after}")


def accept_ten(here):
    here.accepted = [here.sock.accept(timeout=60) for _ in range(10)]
    assert all(c.recv(timeout=60) == b"hello" for c in here.accepted)
    here.sent = [c.isend(bytes(1 << 20)) for c in here.accepted]
    here.received = [c.irecv() for c in here.accepted]


def connect_ten(here, address):
    here.all = [here.session.connect(address) for _ in range(10)]
    for c in here.all:
        c.send(b"hello")


def count_lost(here):
    def lost(request):
        try:
            request.wait(60)
        except pscompy.PeerLost:
            return True
        return False

    n = sum(map(lost, here.sent + here.received))
    del here.accepted, here.sent, here.received
    gc.collect()  # an exception refers to the frame that has the request that raised it
    return n


def test_peers_that_are_killed(transport, start):
    """Peers with ten connections each are killed in the middle of an exchange."""
    server = start(ONLY[transport])
    address = server(listen)
    taken = []

    def round_of_ten():
        peer = start(ONLY[transport])
        server.begin(accept_ten)
        peer(connect_ten, address)
        server.result()
        peer.kill()
        lost = server(count_lost)
        taken.append(lost)

    for _ in range(2):
        round_of_ten()
    expect_soon(lambda: server(measure)[0] == 0)
    descriptors = server(measure)[1]
    before = settled(server, 0, descriptors)
    for _ in range(6):
        round_of_ten()
    # malloc may keep one round's buffers (10 MiB) as fragments; 60 leaked connections would keep 60
    # MiB.
    after = settled(server, 0, descriptors)
    expect_soon(lambda: server.resident() - before < 4 * SLACK, f"less memory than {after}")
    assert taken == [20] * 8


def test_from_several_threads(transport, open_session):
    """Threads open and close connections of one session at the same time."""
    here, there = open_session(**ONLY[transport]), open_session(**ONLY[transport])
    sock = there.listen("127.0.0.1")
    answered = []

    def serve():
        for c in sock:
            c.send(c.recv(timeout=BOUND))

    def ask():
        for _ in range(50):
            c = here.connect(sock.address)
            c.send(b"?")
            answered.append(bytes(c.recv(timeout=BOUND)))
            c.close()

    threads = [threading.Thread(target=run) for run in (ask, ask, ask, serve)]
    for thread in threads:
        thread.start()
    for thread in threads[:3]:
        thread.join(BOUND)
    sock.close()
    threads[3].join(BOUND)
    assert answered == [b"?"] * 150
    mine = here._control, there._control
    expect_soon(lambda: not any(control_of(it) in mine for it in gc.get_objects()))


def control_of(thing):
    """The control plane of the connection `thing`; None for other objects."""
    return thing._context.control if isinstance(thing, pscompy.Connection) else None
