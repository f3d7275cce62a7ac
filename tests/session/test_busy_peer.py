"""Peers that compute or are stopped: connections to them succeed meanwhile or right after, and
waiting for them uses almost no CPU time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import time

import pytest
from puppets import BOUND, ONLY, accept, check_echo, echo, listen, open_session_there

import pscompy
from tests.waiting import expect_soon, idles, own_use

SECONDS = 5


@pytest.fixture
def busy(transport, start):
    """Returns a function that starts a listening peer, lets it begin `work`, and returns the
    peer and its address."""

    def begin(work):
        peer = start(ONLY[transport])
        address = peer(listen)
        peer.begin(work)
        return peer, address

    return begin


@pytest.fixture
def session(transport, open_session):
    return open_session(**ONLY[transport])


def compute_until_a_signal(here):
    told = []
    signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
    while not told:
        sum(range(1000))


def test_a_peer_in_a_python_loop(session, busy):
    """The first eager send returns and the connection opens while the peer's Python loop runs."""
    peer, address = busy(compute_until_a_signal)
    c = session.connect(address)
    c.send(b"first")
    assert c.open(BOUND) is None
    with pytest.raises(AssertionError, match="hangs"):
        peer.result(timeout=0)  # the peer is still in its loop
    peer.send_signal(signal.SIGUSR1)
    peer.result()
    assert peer(lambda here: bytes(here.sock.accept(60).recv())) == b"first"


def accept_two_messages(here):
    here.c = here.sock.accept(60)
    return bytes(here.c.recv()), len(here.c.recv())


def test_a_peer_that_holds_the_interpreter(session, busy):
    """A peer that holds the GIL is connected as soon as it releases the GIL; nothing times out
    before."""
    peer, address = busy(lambda here: ctypes.PyDLL(None).sleep(SECONDS))
    c = session.connect(address)
    c.send(b"first")
    request = c.isend(bytes(3_000_000))
    peer.result()
    peer.begin(accept_two_messages)
    request.wait(BOUND)
    assert peer.result() == (b"first", 3_000_000)


def test_two_that_hold_the_interpreter_in_turns(session, busy):
    """Both sides of a handshake hold the GIL, one after the other."""
    peer, address = busy(lambda here: ctypes.PyDLL(None).usleep(1_000_000))
    c = session.connect(address)
    request = c.iopen()
    for _ in range(3):
        ctypes.PyDLL(None).usleep(400_000)
    assert request.wait(BOUND) is None
    peer.result()


def test_a_candidate_is_not_given_up_for_a_peer_that_is_held_up(transport, start, open_session):
    """The peer holds the GIL several times, for longer than the candidate's time-out; the
    handshake needs moments in which both sides run."""
    config = ONLY[transport] | {"CANDIDATE_TIMEOUT": "0.2"}
    peer = start(config)
    address = peer(listen)
    peer.begin(lambda here: [ctypes.PyDLL(None).usleep(600_000) for _ in range(6)])
    c = open_session(**config).connect(address)
    assert c.open(BOUND) is None
    peer.result()


BLOCKED = {
    "receive": lambda here: here.c.recv(timeout=1),
    "probe": lambda here: here.c.probe(timeout=1),
    "accept": lambda here: here.sock.accept(timeout=1),
    "rendezvous": lambda here: here.sent.wait(1),
}


def used(here, call):
    """The share of a CPU that the process uses while `call` waits."""
    before, begun = time.process_time(), time.monotonic()
    with contextlib.suppress(pscompy.Timeout):
        call(here)
    return (time.process_time() - before) / (time.monotonic() - begun)


def post_large_send(here):
    here.sent = here.c.isend(bytes(20_000_000))


@pytest.mark.parametrize("call", BLOCKED)
def test_a_blocked_call_sleeps(connect, transport, call):
    """All threads together use less than 2 % of a core, shortly after other traffic."""
    link = connect(transport)
    link.peer(listen)
    link.peer.begin(echo, 100)
    for _ in range(100):
        link.c.send(b"traffic")
        link.c.recv(timeout=BOUND)
    link.peer.result()
    if call == "rendezvous":
        link.peer(post_large_send)
    assert idles(lambda: link.peer(used, BLOCKED[call]))


def test_an_idle_session_sleeps(connect, transport):
    """Without any waiting call the threads of a session use no CPU time."""
    connect(transport)
    assert idles(own_use)


def used_by_await(here):
    async def wait():
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(here.c.irecv(), 1)

    return used(here, lambda here: asyncio.run(wait()))


def test_a_blocked_coroutine_sleeps(start, transport):
    """A coroutine that waits for a message uses no CPU time either."""
    server, client = start(ONLY[transport]), start(ONLY[transport])
    address = server(listen)
    client.connect(address)
    server(accept)
    assert idles(lambda: server(used_by_await))


def check_stopped(link):
    """A peer that SIGSTOP has suspended for some seconds is not reported as lost."""
    link.peer.stop()
    link.c.send(b"patience")
    with pytest.raises(pscompy.Timeout):
        link.c.recv(timeout=3)
    link.peer.send_signal(18)
    link.peer.begin(lambda here: (here.c.send(here.c.recv()), here.c.recv()))
    assert link.c.recv(timeout=BOUND) == b"patience"
    link.c.send(b"the answer has arrived")
    link.peer.result()


def test_a_stopped_peer_is_not_dead(connect, transport):
    check_stopped(connect(transport))


def test_a_peer_whose_rails_all_stop_is_not_dead(connect):
    """One is given up soon, and joined again later, but not the last one."""
    two = {"PORTALS_INTERFACE": "127.0.0.1,127.0.0.2", "PORTALS_RAIL_TIMEOUT": 0.3}
    link = connect("portals", **two)

    def joined_again(before):
        check_echo(link)
        return link.c.stats["rails_joined"] > before

    for _ in range(2):
        before = link.c.stats["rails_joined"]
        check_stopped(link)
        expect_soon(lambda before=before: joined_again(before))


def test_an_idle_peer_whose_rails_all_stop_is_not_dead(connect):
    """The pings on both rails, which are sent at the same time, get no answer."""
    two = {"PORTALS_INTERFACE": "127.0.0.1,127.0.0.2", "PORTALS_RAIL_TIMEOUT": 0.3}
    link = connect("portals", **two, PORTALS_KEEPALIVE=1)
    check_echo(link)
    link.peer.stop()
    with pytest.raises(pscompy.Timeout):
        link.c.recv(timeout=5)
    link.peer.send_signal(18)
    expect_soon(lambda: check_echo(link) or link.c.stats["rails_joined"] > 0)


def test_many_sessions_in_turn(start, transport):
    """A process opens and closes sessions while peers connect to the next one."""
    server, client = start(ONLY[transport]), start(ONLY[transport])
    for _ in range(5):
        address = server(listen)
        client.connect(address)
        assert server(accept) == b"hello"
        server(lambda here: here.session.close())
        client(lambda here: here.c.close())
        server(open_session_there, ONLY[transport])


def send_all(here):
    for i in range(200):
        here.c.send(bytes([i]) * 1000)


def test_what_was_sent_leaves_though_the_sender_never_calls_again(start):
    """Sends that returned although the socket had no room for their bytes complete without a
    poll."""
    small = {**ONLY["tcp"], "TCP_SO_SNDBUF": 16 << 10, "TCP_SO_RCVBUF": 16 << 10}
    sender, receiver = start(small), start(small)
    sender.connect(receiver(listen))
    receiver(accept)
    sender(send_all)
    expect_soon(sender.idle)
    received = receiver(lambda here: [bytes(here.c.recv(timeout=60)) for _ in range(200)])
    assert received == [bytes([i]) * 1000 for i in range(200)]
