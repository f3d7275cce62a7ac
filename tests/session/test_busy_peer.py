"""Peers that do something else: they are connected to meanwhile, or right after; and waiting costs
next to nothing."""

from __future__ import annotations

import ctypes
import resource
import time

import pytest
from puppets import BOUND, ONLY, OPEN

import pscompy

SECONDS = 5


@pytest.fixture
def busy(transport, start):
    """A peer that listens and has begun something that takes 5 s; with its address."""

    def begin(work):
        peer = start(ONLY[transport])
        address = peer("import ctypes; sock = session.listen('127.0.0.1'); sock.address")
        peer.begin(f"begun = time.monotonic()\n{work}\ntime.monotonic() - begun")
        return peer, address

    return begin


@pytest.fixture
def session(transport, open_session):
    return open_session(**ONLY[transport])


def test_a_peer_in_a_python_loop(session, busy):
    """The first eager send returns, and the connection is up, while the loop runs."""
    peer, address = busy(f"while time.monotonic() < begun + {SECONDS}: sum(range(1000))")
    c = session.connect(address)
    c.send(b"first")
    assert c.open(BOUND) is None
    with pytest.raises(AssertionError, match="hangs"):
        peer.result(timeout=0)  # it is still in its loop
    assert peer.result() >= SECONDS
    assert peer("bytes(sock.accept(20).recv())") == b"first"


def test_a_peer_that_holds_the_interpreter(session, busy):
    """It is connected to as soon as it lets go; nothing times out meanwhile."""
    peer, address = busy(f"ctypes.PyDLL(None).sleep({SECONDS})")
    c = session.connect(address)
    c.send(b"first")
    request = c.isend(bytes(3_000_000))
    assert peer.result() >= SECONDS - 0.5
    peer.begin("c = sock.accept(20); bytes(c.recv()), len(c.recv())")
    request.wait(BOUND)
    assert peer.result() == (b"first", 3_000_000)


def test_two_that_hold_the_interpreter_in_turns(session, busy):
    """Both sides of a handshake are stuck, one after the other."""
    peer, address = busy("ctypes.PyDLL(None).usleep(1_000_000)")
    c = session.connect(address)
    request = c.iopen()
    for _ in range(3):
        ctypes.PyDLL(None).usleep(400_000)
    assert request.wait(BOUND) is None
    peer.result()


BLOCKED = {
    "receive": "c.recv(timeout=3)",
    "probe": "c.probe(timeout=3)",
    "accept": "sock.accept(timeout=3)",
    "rendezvous": "c.send(bytes(20_000_000), timeout=3)",
}


@pytest.mark.parametrize("call", BLOCKED)
def test_a_blocked_call_sleeps(connect, transport, call):
    """Less than 2 % of a core over 3 s, all threads together, shortly after other traffic."""
    link = connect(transport)
    link.peer("sock = session.listen('127.0.0.1')")
    link.peer.begin("for _ in range(100): c.send(c.recv())")
    for _ in range(100):
        link.c.send(b"traffic")
        link.c.recv(timeout=BOUND)
    link.peer.result()
    used = link.peer(
        """
        import resource
        before = resource.getrusage(resource.RUSAGE_SELF)
        begun = time.monotonic()
        try:
            eval(call)
        except pscompy.Timeout:
            pass
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        cpu / (time.monotonic() - begun)
        """,
        call=BLOCKED[call],
    )
    assert used < 0.02


def test_an_idle_session_sleeps(connect, transport):
    """Nobody waits for anything: its threads do nothing."""
    connect(transport)
    before = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(2)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.04


def test_a_blocked_coroutine_sleeps(start, transport):
    """The same in an event loop."""
    server, client = start(ONLY[transport]), start(ONLY[transport])
    address = server("sock = session.listen('127.0.0.1'); sock.address")
    client("c = session.connect(address); c.send(b'')", address=address)
    used = server(
        """
        import asyncio, resource
        async def main():
            d = await sock.iaccept()
            await d.irecv()
            before = resource.getrusage(resource.RUSAGE_SELF)
            try:
                await asyncio.wait_for(d.irecv(), 3)
            except asyncio.TimeoutError:
                pass
            after = resource.getrusage(resource.RUSAGE_SELF)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        asyncio.run(main())
        """
    )
    assert used < 0.06


def test_a_stopped_peer_is_not_dead(connect, transport):
    """SIGSTOP for some seconds: slow, not gone."""
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
    """A process that opens and closes sessions while peers connect to the next one."""
    server, client = start(ONLY[transport]), start(ONLY[transport])
    for _ in range(5):
        address = server("sock = session.listen('127.0.0.1'); sock.address")
        client("c = session.connect(address); c.send(b'x')", address=address)
        assert server("d = sock.accept(20); bytes(d.recv())") == b"x"
        server("session.close()")
        client("c.close()")
        server(OPEN, config=ONLY[transport])


def test_what_was_sent_leaves_though_the_sender_never_calls_again(start):
    """Sends have returned whose bytes the socket had no room for; nobody polls for it either."""
    small = {**ONLY["tcp"], "TCP_SO_SNDBUF": 16 << 10, "TCP_SO_RCVBUF": 16 << 10}
    sender, receiver = start(small), start(small)
    sender.connect(receiver("sock = session.listen('127.0.0.1'); sock.address"))
    receiver("c = sock.accept(20); c.recv()")
    sender("for i in range(200): c.send(bytes([i]) * 1000)")
    used = sender("before = time.process_time(); time.sleep(1); time.process_time() - before")
    assert used < 0.2
    received = receiver("[bytes(c.recv(timeout=20)) for _ in range(200)]")
    assert received == [bytes([i]) * 1000 for i in range(200)]
