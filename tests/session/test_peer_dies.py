"""A peer is killed (SIGKILL) at every stage of a connection's and a message's life: the other
side learns of it soon, loses nothing that had arrived, and still serves its other peers.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pathlib
import signal
import struct
import termios
import threading
import time

import pytest
from puppets import BOUND, check_echo, own_descriptors

import pscompy
from tests.waiting import expect_soon, once_blocked

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


def test_idle(link, join):
    other = join(link)
    link.peer.kill()
    expect_failed(link.c)
    expect_lost(lambda: link.c.send(b"to nobody"))
    expect_lost(lambda: link.c.recv())
    check_echo(other)


def test_while_a_receive_is_blocked(link, join):
    other = join(link)
    once_blocked(link.peer.kill)
    expect_lost(link.c.recv)
    check_echo(other)


def test_while_a_probe_is_blocked(link):
    once_blocked(link.peer.kill)
    expect_lost(link.c.probe)


def test_while_a_send_is_blocked(link):
    once_blocked(link.peer.kill)
    expect_lost(lambda: link.c.send(bytes(LARGE)))


def send_hundred(here):
    for i in range(100):
        here.c.send(i.to_bytes(4, "little") * 64)


def await_departure(here):
    """Wait until all bytes have left, because a kernel that closes a socket with unread bytes
    resets it and drops the bytes that are still to be sent."""

    def unsent(fd):
        try:
            return struct.unpack("i", fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)))[0]
        except OSError:  # no stream
            return 0

    while any(unsent(int(fd.name)) for fd in pathlib.Path("/proc/self/fd").iterdir()):
        time.sleep(0.01)


def test_what_had_arrived_is_received_first(link):
    link.peer(send_hundred)
    link.peer(await_departure)
    link.peer.kill()
    expect_failed(link.c)
    for i in range(100):
        assert link.c.recv() == i.to_bytes(4, "little") * 64
    expect_lost(link.c.recv)


def stream(here):
    n = 0
    while True:
        here.c.send(n.to_bytes(8, "little") * 16)
        n += 1


def test_in_an_eager_stream(link, join):
    other = join(link)
    link.peer.begin(stream)
    for i in range(1000):
        assert link.c.recv(timeout=BOUND) == i.to_bytes(8, "little") * 16
    link.peer.kill()
    n = 1000
    with pytest.raises(pscompy.PeerLost):
        while True:
            assert link.c.recv(timeout=BOUND) == n.to_bytes(8, "little") * 16
            n += 1
    check_echo(other)


def receive_forever(here):
    while True:
        here.c.recv()


def test_while_we_stream_to_it(link, join):
    other = join(link)
    link.peer.begin(receive_forever)
    killing, begun = threading.Thread(target=link.peer.kill), time.monotonic()
    with pytest.raises(pscompy.PeerLost):
        for sent in itertools.count():
            assert time.monotonic() - begun < BOUND
            if sent == 1000:
                killing.start()
            link.c.send(bytes(200))
    killing.join()
    check_echo(other)


MANY = int(os.environ.get("PSCOMPY_TEST_PEER_KILLS", "6")) > 6
PASSES = (0, 1, 2, 3, 5, 8, 13, 30, 100)[:: 1 if MANY else 2]


def post_send(here):
    here.r = here.c.isend(pattern(LARGE)[:LARGE])


def post_receive(here):
    here.r = here.c.irecv(bytearray(LARGE))


def die_after(here, post, passes):
    post(here)
    for _ in range(passes):
        here.session.progress()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("scheme", ["put", "get", "am"])
def test_sender_dies_before_the_receive(transport, scheme, connect, join):
    """The sender dies after its announcement: the receive ends with PeerLost."""
    first = connect(transport, RNDV_SCHEME=scheme)
    link = join(first, RNDV_SCHEME=scheme)
    link.peer(post_send)
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
    assert link.peer(lambda here: here.c.probe().nbytes) == LARGE
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
        link.peer.begin(die_after, post_send, passes)
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
        link.peer.begin(die_after, post_receive, passes)
        end_of(request)
        expect_failed(link.c)
    check_echo(first)


def send_forever(here):
    while True:
        here.c.send(bytes(1 << 20))


def test_many_deaths_leave_nothing_behind(link, join):
    """12 peers killed in the middle of large messages leave no descriptors and no memory."""
    buffer = bytearray(MIB)
    counts = []
    for _ in range(12):
        other = join(link)
        other.peer.begin(send_forever)
        other.c.recv(buffer, timeout=BOUND)
        other.peer.kill()
        with pytest.raises(pscompy.PeerLost):
            while True:
                other.c.recv(buffer, timeout=BOUND)
        other.peer.end()
        counts.append(own_descriptors())
    expect_soon(lambda: own_descriptors() <= counts[0])
    check_echo(link)
