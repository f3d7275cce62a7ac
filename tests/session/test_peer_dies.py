"""kill -9 of a peer, at every stage of a connection's and a message's life: the other side learns
of it soon, loses nothing that had arrived, and goes on with its other peers."""

from __future__ import annotations

import threading
import time

import pytest
from puppets import BOUND, echo, own_descriptors, until

import pscompy

SOON = 5.0  # about a second, on a machine that does other things too
MIB = 1 << 20
LARGE = 24 * MIB


def pattern(nbytes):
    return bytes(range(251)) * (nbytes // 251 + 1)


def lost(call):
    """The call ends with PeerLost, soon."""
    begun = time.monotonic()
    with pytest.raises(pscompy.PeerLost):
        call()
    assert time.monotonic() - begun < SOON


@pytest.fixture
def link(connect, transport):
    return connect(transport)


def test_idle(link, join):
    other = join(link)
    link.peer.kill()
    until(lambda: link.c.state is pscompy.ConnectionState.FAILED, SOON)
    lost(lambda: link.c.send(b"to nobody"))
    lost(lambda: link.c.recv())
    echo(other)


def test_while_a_receive_is_blocked(link, join):
    other = join(link)
    threading.Timer(0.2, link.peer.kill).start()
    lost(link.c.recv)
    echo(other)


def test_while_a_probe_is_blocked(link):
    threading.Timer(0.2, link.peer.kill).start()
    lost(link.c.probe)


def test_while_a_send_is_blocked(link):
    threading.Timer(0.2, link.peer.kill).start()
    lost(lambda: link.c.send(bytes(LARGE)))


# A kernel that closes a socket with unread bytes resets it, and drops what waits to be sent there.
ALL_HAVE_LEFT = """
import fcntl, pathlib, struct, termios
def unsent(fd):
    try:
        return struct.unpack("i", fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)))[0]
    except OSError:  # no stream
        return 0
while any(unsent(int(fd.name)) for fd in pathlib.Path("/proc/self/fd").iterdir()):
    time.sleep(0.01)
"""


def test_what_had_arrived_is_received_first(link):
    link.peer("for i in range(100): c.send(i.to_bytes(4, 'little') * 64)")
    link.peer(ALL_HAVE_LEFT)
    link.peer.kill()
    until(lambda: link.c.state is pscompy.ConnectionState.FAILED, SOON)
    for i in range(100):
        assert link.c.recv() == i.to_bytes(4, "little") * 64
    lost(link.c.recv)


def test_in_an_eager_stream(link, join):
    other = join(link)
    link.peer.begin("n = 0\nwhile True:\n  c.send(n.to_bytes(8, 'little') * 16); n += 1")
    for i in range(1000):
        assert link.c.recv(timeout=BOUND) == i.to_bytes(8, "little") * 16
    link.peer.kill()
    n = 1000
    with pytest.raises(pscompy.PeerLost):
        while True:
            assert link.c.recv(timeout=SOON) == n.to_bytes(8, "little") * 16
            n += 1
    echo(other)


def test_while_we_stream_to_it(link, join):
    other = join(link)
    link.peer.begin("while True: c.recv()")
    threading.Timer(0.2, link.peer.kill).start()
    begun = time.monotonic()
    with pytest.raises(pscompy.PeerLost):
        while time.monotonic() - begun < SOON:
            link.c.send(bytes(200))
    echo(other)


DIE_AFTER = """
begun = time.monotonic()
for _ in range(passes):
    session.progress()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("scheme", ["put", "get", "am"])
def test_sender_dies_in_rendezvous(transport, scheme, connect, join):
    """At the n-th pass of its progress, for several n: lost, or whole and right."""
    first = connect(transport, RNDV_SCHEME=scheme)
    data, buffer = pattern(LARGE)[:LARGE], bytearray(LARGE)
    outcomes = set()
    for passes in (0, 1, 2, 3, 5, 8, 13, 30, 100):
        link = join(first, RNDV_SCHEME=scheme)
        request = link.c.irecv(buffer)
        source = "data = (bytes(range(251)) * (size // 251 + 1))[:size]\nr = c.isend(data)\n"
        link.peer.begin(source + DIE_AFTER, size=LARGE, passes=passes)
        try:
            status = request.wait(SOON)
            assert status.nbytes == LARGE
            assert buffer == data
            outcomes.add("whole")
        except pscompy.PeerLost:
            outcomes.add("lost")
        link.peer.process.wait(BOUND)
        buffer[:] = bytes(LARGE)
    assert "lost" in outcomes
    echo(first)


@pytest.mark.parametrize("scheme", ["put", "get", "am"])
def test_receiver_dies_in_rendezvous(transport, scheme, connect, join):
    first = connect(transport, RNDV_SCHEME=scheme)
    outcomes = set()
    for passes in (0, 1, 2, 3, 5, 8, 13, 30, 100):
        link = join(first, RNDV_SCHEME=scheme)
        request = link.c.isend(bytes(LARGE))
        link.peer.begin(
            "buf = bytearray(size)\nr = c.irecv(buf)\n" + DIE_AFTER, size=LARGE, passes=passes
        )
        try:
            request.wait(SOON)
            outcomes.add("whole")
        except pscompy.PeerLost:
            outcomes.add("lost")
        link.peer.process.wait(BOUND)
    assert "lost" in outcomes
    echo(first)


def test_many_deaths_leave_nothing_behind(link, join):
    """Descriptors and memory after 12 peers were killed in the middle of large messages."""
    buffer = bytearray(MIB)
    counts = []
    for _ in range(12):
        other = join(link)
        other.peer.begin("while True: c.send(bytes(1 << 20))")
        other.c.recv(buffer, timeout=BOUND)
        other.peer.kill()
        with pytest.raises(pscompy.PeerLost):
            while True:
                other.c.recv(buffer, timeout=SOON)
        other.peer.end()
        counts.append(own_descriptors())
    until(lambda: own_descriptors() <= counts[0], SOON)
    echo(link)
