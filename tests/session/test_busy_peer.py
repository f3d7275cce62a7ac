"""Peers that compute or are stopped: connections to them succeed meanwhile or right after, and
waiting for them uses almost no CPU time.
"""

from __future__ import annotations

import ctypes
import signal

import pytest
from puppets import BOUND, ONLY, OPEN

import pscompy
from tests.waiting import idles, own_use

SECONDS = 5


@pytest.fixture
def busy(transport, start):
    """Returns a function that starts a listening peer, lets it begin `work`, and returns the
    peer and its address."""

    def begin(work):
        peer = start(ONLY[transport])
        address = peer("import ctypes; sock = session.listen('127.0.0.1'); sock.address")
        peer.begin(work)
        return peer, address

    return begin


@pytest.fixture
def session(transport, open_session):
    return open_session(**ONLY[transport])


def test_a_peer_in_a_python_loop(session, busy):
    """The first eager send returns and the connection opens while the peer's Python loop runs."""
    peer, address = busy(
        """
        told = []
        signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
        while not told: sum(range(1000))
        """
    )
    c = session.connect(address)
    c.send(b"first")
    assert c.open(BOUND) is None
    with pytest.raises(AssertionError, match="hangs"):
        peer.result(timeout=0)  # the peer is still in its loop
    peer.send_signal(signal.SIGUSR1)
    peer.result()
    assert peer("bytes(sock.accept(60).recv())") == b"first"


def test_a_peer_that_holds_the_interpreter(session, busy):
    """A peer that holds the GIL is connected as soon as it releases the GIL; nothing times out
    before."""
    peer, address = busy(f"ctypes.PyDLL(None).sleep({SECONDS})")
    c = session.connect(address)
    c.send(b"first")
    request = c.isend(bytes(3_000_000))
    peer.result()
    peer.begin("c = sock.accept(60); bytes(c.recv()), len(c.recv())")
    request.wait(BOUND)
    assert peer.result() == (b"first", 3_000_000)


def test_two_that_hold_the_interpreter_in_turns(session, busy):
    """Both sides of a handshake hold the GIL, one after the other."""
    peer, address = busy("ctypes.PyDLL(None).usleep(1_000_000)")
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
    address = peer("import ctypes; sock = session.listen('127.0.0.1'); sock.address")
    peer.begin("[ctypes.PyDLL(None).usleep(600_000) for _ in range(6)]")
    c = open_session(**config).connect(address)
    assert c.open(BOUND) is None
    peer.result()


BLOCKED = {
    "receive": "c.recv(timeout=1)",
    "probe": "c.probe(timeout=1)",
    "accept": "sock.accept(timeout=1)",
    "rendezvous": "sent.wait(1)",
}
USED = """
def used(call):
    before, begun = time.process_time(), time.monotonic()
    try:
        eval(call)
    except pscompy.Timeout:
        pass
    return (time.process_time() - before) / (time.monotonic() - begun)
"""


@pytest.mark.parametrize("call", BLOCKED)
def test_a_blocked_call_sleeps(connect, transport, call):
    """All threads together use less than 2 % of a core, shortly after other traffic."""
    link = connect(transport)
    link.peer("sock = session.listen('127.0.0.1')")
    link.peer.begin("for _ in range(100): c.send(c.recv())")
    for _ in range(100):
        link.c.send(b"traffic")
        link.c.recv(timeout=BOUND)
    link.peer.result()
    link.peer(USED)
    if call == "rendezvous":
        link.peer("sent = c.isend(bytes(20_000_000))")
    assert idles(lambda: link.peer("used(call)", call=BLOCKED[call]))


def test_an_idle_session_sleeps(connect, transport):
    """Without any waiting call the threads of a session use no CPU time."""
    connect(transport)
    assert idles(own_use)


def test_a_blocked_coroutine_sleeps(start, transport):
    """A coroutine that waits for a message uses no CPU time either."""
    server, client = start(ONLY[transport]), start(ONLY[transport])
    address = server("sock = session.listen('127.0.0.1'); sock.address")
    client("c = session.connect(address); c.send(b'')", address=address)
    server(
        """
        import asyncio
        d = sock.accept(60)
        d.recv()
        async def used():
            before, begun = time.process_time(), time.monotonic()
            try:
                await asyncio.wait_for(d.irecv(), 1)
            except asyncio.TimeoutError:
                pass
            return (time.process_time() - before) / (time.monotonic() - begun)
        """
    )
    assert idles(lambda: server("asyncio.run(used())"))


def test_a_stopped_peer_is_not_dead(connect, transport):
    """A peer that SIGSTOP has suspended for some seconds is not reported as lost."""
    link = connect(transport)
    link.peer.send_signal(19)
    link.c.send(b"patience")
    with pytest.raises(pscompy.Timeout):
        link.c.recv(timeout=3)
    link.peer.send_signal(18)
    link.peer.begin("c.send(c.recv())")
    assert link.c.recv(timeout=BOUND) == b"patience"
    link.peer.result()


def test_many_sessions_in_turn(start, transport):
    """A process opens and closes sessions while peers connect to the next one."""
    server, client = start(ONLY[transport]), start(ONLY[transport])
    for _ in range(5):
        address = server("sock = session.listen('127.0.0.1'); sock.address")
        client("c = session.connect(address); c.send(b'x')", address=address)
        assert server("d = sock.accept(60); bytes(d.recv())") == b"x"
        server("session.close()")
        client("c.close()")
        server(OPEN, config=ONLY[transport])


def test_what_was_sent_leaves_though_the_sender_never_calls_again(start):
    """Sends that returned although the socket had no room for their bytes complete without a
    poll."""
    small = {**ONLY["tcp"], "TCP_SO_SNDBUF": 16 << 10, "TCP_SO_RCVBUF": 16 << 10}
    sender, receiver = start(small), start(small)
    sender.connect(receiver("sock = session.listen('127.0.0.1'); sock.address"))
    receiver("c = sock.accept(60); c.recv()")
    sender("for i in range(200): c.send(bytes([i]) * 1000)")
    sender(USED)
    assert idles(lambda: sender("used('time.sleep(0.5)')"), 0.2)
    received = receiver("[bytes(c.recv(timeout=60)) for _ in range(200)]")
    assert received == [bytes([i]) * 1000 for i in range(200)]
