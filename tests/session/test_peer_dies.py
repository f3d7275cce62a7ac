"""A peer is killed (SIGKILL) at every stage of a connection's and a message's life: the other
side learns of it soon, loses nothing that had arrived, and still serves its other peers.
"""

from __future__ import annotations

import threading
import time

import pytest
from puppets import BOUND, check_echo, own_descriptors

import pscompy
from tests.waiting import expect_soon

MIB = 1 << 20
LARGE = 24 * MIB


def pattern(nbytes):
    return bytes(range(251)) * (nbytes // 251 + 1)


def expect_lost(call):
    """Check that `call` ends with PeerLost within BOUND seconds."""
    begun = time.monotonic()
    with pytest.raises(pscompy.PeerLost):
        call()
    assert time.monotonic() - begun < BOUND


def expect_failed(connection):
    expect_soon(lambda: connection.state is pscompy.ConnectionState.FAILED)


@pytest.fixture
def link(connect, transport):
    return connect(transport)


def test_idle(link, join):
    other = join(link)
    link.peer.kill()
    expect_failed(link.c)
    expect_lost(lambda: link.c.send(b"to nobody"))
    expect_lost(lambda: link.c.recv())
    check_echo(other)


def test_while_a_receive_is_blocked(link, join):
    other = join(link)
    threading.Timer(0.2, link.peer.kill).start()
    expect_lost(link.c.recv)
    check_echo(other)


def test_while_a_probe_is_blocked(link):
    threading.Timer(0.2, link.peer.kill).start()
    expect_lost(link.c.probe)


def test_while_a_send_is_blocked(link):
    threading.Timer(0.2, link.peer.kill).start()
    expect_lost(lambda: link.c.send(bytes(LARGE)))


# The puppet waits until its bytes have left, because a kernel that closes a socket with unread
# bytes resets it and drops the bytes that are still to be sent.
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
    expect_failed(link.c)
    for i in range(100):
        assert link.c.recv() == i.to_bytes(4, "little") * 64
    expect_lost(link.c.recv)


def test_in_an_eager_stream(link, join):
    other = join(link)
    link.peer.begin("n = 0\nwhile True:\n  c.send(n.to_bytes(8, 'little') * 16); n += 1")
    for i in range(1000):
        assert link.c.recv(timeout=BOUND) == i.to_bytes(8, "little") * 16
    link.peer.kill()
    n = 1000
    with pytest.raises(pscompy.PeerLost):
        while True:
            assert link.c.recv(timeout=BOUND) == n.to_bytes(8, "little") * 16
            n += 1
    check_echo(other)


def test_while_we_stream_to_it(link, join):
    other = join(link)
    link.peer.begin("while True: c.recv()")
    threading.Timer(0.2, link.peer.kill).start()
    begun = time.monotonic()
    with pytest.raises(pscompy.PeerLost):
        while time.monotonic() - begun < BOUND:
            link.c.send(bytes(200))
    check_echo(other)


SEND = "data = (bytes(range(251)) * (size // 251 + 1))[:size]\nr = c.isend(data)\n"
RECEIVE = "buffer = bytearray(size)\nr = c.irecv(buffer)\n"
DIE_AFTER = """
for _ in range(passes):
    session.progress()
os.kill(os.getpid(), signal.SIGKILL)
"""
PASSES = (0, 1, 2, 3, 5, 8, 13, 30, 100)


@pytest.mark.parametrize("scheme", ["put", "get", "am"])
def test_sender_dies_before_the_receive(transport, scheme, connect, join):
    """The sender dies after its announcement: the receive ends with PeerLost."""
    first = connect(transport, RNDV_SCHEME=scheme)
    link = join(first, RNDV_SCHEME=scheme)
    link.peer(SEND, size=LARGE)
    assert link.c.probe(timeout=BOUND).nbytes == LARGE
    link.peer.kill()
    expect_lost(lambda: link.c.recv(bytearray(LARGE)))
    expect_failed(link.c)
    check_echo(first)


@pytest.mark.parametrize("scheme", ["put", "get", "am"])
def test_receiver_dies_before_its_receive(transport, scheme, connect, join):
    first = connect(transport, RNDV_SCHEME=scheme)
    link = join(first, RNDV_SCHEME=scheme)
    request = link.c.isend(bytes(LARGE))
    assert link.peer("c.probe().nbytes") == LARGE
    link.peer.kill()
    expect_lost(request.wait)
    expect_failed(link.c)
    check_echo(first)


def end_of(request):
    """The status of `request`, or None if it ended with PeerLost; any other error is raised."""
    try:
        return request.wait(BOUND)
    except pscompy.PeerLost:
        return None


@pytest.mark.parametrize("scheme", ["put", "get", "am"])
def test_sender_dies_in_rendezvous(transport, scheme, connect, join):
    """The sender is killed at the n-th pass of its progress, for several n. The message may be
    lost or complete; if it is complete every byte is right."""
    first = connect(transport, RNDV_SCHEME=scheme)
    data = pattern(LARGE)[:LARGE]
    for passes in PASSES:
        link = join(first, RNDV_SCHEME=scheme)
        buffer = bytearray(LARGE)
        request = link.c.irecv(buffer)
        link.peer.begin(SEND + DIE_AFTER, size=LARGE, passes=passes)
        if status := end_of(request):
            assert status.nbytes == LARGE
            assert buffer == data
        expect_failed(link.c)
    check_echo(first)


@pytest.mark.parametrize("scheme", ["put", "get", "am"])
def test_receiver_dies_in_rendezvous(transport, scheme, connect, join):
    first = connect(transport, RNDV_SCHEME=scheme)
    for passes in PASSES:
        link = join(first, RNDV_SCHEME=scheme)
        request = link.c.isend(bytes(LARGE))
        link.peer.begin(RECEIVE + DIE_AFTER, size=LARGE, passes=passes)
        end_of(request)
        expect_failed(link.c)
    check_echo(first)


def test_many_deaths_leave_nothing_behind(link, join):
    """12 peers killed in the middle of large messages leave no descriptors and no memory."""
    buffer = bytearray(MIB)
    counts = []
    for _ in range(12):
        other = join(link)
        other.peer.begin("while True: c.send(bytes(1 << 20))")
        other.c.recv(buffer, timeout=BOUND)
        other.peer.kill()
        with pytest.raises(pscompy.PeerLost):
            while True:
                other.c.recv(buffer, timeout=BOUND)
        other.peer.end()
        counts.append(own_descriptors())
    expect_soon(lambda: own_descriptors() <= counts[0])
    check_echo(link)
