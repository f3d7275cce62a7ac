"""Calls with a time limit: the exception they raise, and what happens to the message."""

from __future__ import annotations

import time

import pytest
from puppets import BOUND, check_echo, listen

import pscompy

SHORT = 0.05


def timed_out(call):
    begun = time.monotonic()
    with pytest.raises(pscompy.Timeout) as caught:
        call()
    assert SHORT * 0.9 < time.monotonic() - begun < BOUND
    assert isinstance(caught.value, TimeoutError)
    return caught.value


def test_recv_and_probe_take_nothing(link):
    for call in (
        lambda: link.c.recv(timeout=SHORT),
        lambda: link.c.recv(bytearray(4), timeout=SHORT),
        lambda: link.c.recv_status(timeout=SHORT),
        lambda: link.c.probe(timeout=SHORT),
        lambda: link.c.mprobe(timeout=SHORT),
    ):
        assert timed_out(call).request is None
    check_echo(link)


@pytest.mark.parametrize("nbytes", [10, 20_000, 5_000_000])
def test_a_message_with_another_tag_stays(link, nbytes):
    link.peer.begin(lambda here, nbytes: here.c.send(bytes(nbytes), tag=5), nbytes=nbytes)
    assert link.c.probe(5, timeout=BOUND).nbytes == nbytes
    timed_out(lambda: link.c.recv(tag=6, timeout=SHORT))
    timed_out(lambda: link.c.probe(6, timeout=SHORT))
    assert link.c.recv(tag=5, timeout=BOUND) == bytes(nbytes)
    link.peer.result()


def test_zero_polls(link):
    """A call with a timeout of 0 polls once and returns a message that is there."""
    with pytest.raises(pscompy.Timeout):
        link.c.recv(timeout=0)
    link.peer(lambda here: here.c.send(b"there"))
    link.c.probe(timeout=BOUND)
    assert link.c.recv(timeout=0) == b"there"


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_bad_limits(link, timeout):
    with pytest.raises(ValueError):
        link.c.recv(timeout=timeout)


def test_wait_leaves_the_request_in_flight(link):
    request = link.c.irecv()
    error = timed_out(lambda: request.wait(SHORT))
    assert error.request in (None, request)
    timed_out(lambda: pscompy.wait_all([request], timeout=SHORT))
    timed_out(lambda: pscompy.wait_any([request], timeout=SHORT))
    link.peer(lambda here: here.c.send(b"later"))
    assert request.wait(BOUND) == b"later"
    assert request.wait(0) == b"later"


def drain_and_answer(here):
    [here.c.recv(tag=1) and None for _ in range(3000)]
    here.c.send(b"", tag=3)


def test_a_send_of_which_nothing_has_left_is_withdrawn(connect, transport):
    """The peer is stopped, and as many messages as may be are announced, so this send can be
    withdrawn."""
    link = connect(transport, RTS_MAX=1024)
    link.peer.stop()
    queued = [link.c.isend(bytes(60_000), tag=1) for _ in range(3000)]
    error = timed_out(lambda: link.c.send(bytes(60_000), tag=2, timeout=SHORT))
    assert error.request is None
    link.peer.send_signal(18)
    link.peer.begin(drain_and_answer)
    pscompy.wait_all(queued, timeout=BOUND)
    assert link.c.recv(tag=3, timeout=BOUND) == b""
    link.peer.result()
    assert link.peer(lambda here: here.c.iprobe(2)) is None
    check_echo(link)


def test_a_send_under_way_keeps_its_buffer(link):
    """After the rendezvous was announced, Timeout.request ends when the peer has received."""
    data = bytearray(b"x" * 5_000_000)
    error = timed_out(lambda: link.c.send(data, tag=4, timeout=SHORT))
    request = error.request
    assert isinstance(request, pscompy.Request)
    assert not request.test()
    with pytest.raises(BufferError):
        data.clear()  # the library holds the buffer
    link.peer.begin(lambda here: here.c.recv(tag=4) == b"x" * 5_000_000)
    assert request.wait(BOUND) is None
    assert link.peer.result()
    data.clear()


def test_accept(link, join):
    error = timed_out(lambda: link.sock.accept(timeout=SHORT))
    assert error.request is None
    check_echo(join(link))


def test_open_goes_on(link, start):
    """A peer that is stopped during the handshake is connected when it continues."""
    peer = start({})
    address = peer(listen)
    peer.stop()
    c = link.session.connect(address)
    timed_out(lambda: c.open(timeout=SHORT))
    timed_out(lambda: c.recv(timeout=SHORT))
    peer.send_signal(18)
    assert c.open(timeout=BOUND) is None
    c.send(b"after all")
    assert peer(lambda here: bytes(here.sock.accept(60).recv())) == b"after all"


def test_timeouts_are_exact_enough(link):
    """A call never times out early, and never as late as the end of a longer wait."""
    for limit in (0.001, 0.01, 0.3):
        begun = time.monotonic()
        with pytest.raises(pscompy.Timeout):
            link.c.recv(timeout=limit)
        assert limit <= time.monotonic() - begun < BOUND
