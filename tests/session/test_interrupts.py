"""Ctrl-C and other signals during calls that block. A call ends with KeyboardInterrupt, or
continues if the handler raises nothing; the session works afterwards and no message is lost.
"""

from __future__ import annotations

import contextlib
import signal

import pytest
from puppets import BOUND, OPEN, check_echo

from tests.waiting import expect_soon


@pytest.fixture
def link(connect, transport):
    return connect(transport)


def check_interrupted(peer, call):
    """Send SIGINT while `call` blocks in the puppet, and check that it raises KeyboardInterrupt."""
    peer.begin(call)
    expect_soon(peer.sleeps)
    peer.send_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        peer.result()


BLOCKED = {
    "recv": "c.recv()",
    "recv into": "c.recv(bytearray(100))",
    "recv_status": "c.recv_status()",
    "recv with timeout": "c.recv(timeout=60)",
    "probe": "c.probe()",
    "mprobe": "c.mprobe()",
    "wait": "c.irecv().wait()",
    "wait_all": "pscompy.wait_all([c.irecv(), c.irecv()])",
    "wait_any": "pscompy.wait_any([c.irecv(), c.irecv()])",
}


@pytest.mark.parametrize(
    "call", ["recv", "recv into", "recv_status", "recv with timeout", "probe", "mprobe"]
)
def test_receiving(link, call):
    """After an interrupted receive the next receive gets the next message."""
    for _ in range(5):
        check_interrupted(link.peer, BLOCKED[call])
    check_echo(link)


@pytest.mark.parametrize("call", ["wait", "wait_all", "wait_any"])
def test_waiting(link, call):
    """Requests stay in flight when the wait is interrupted, and still take their messages
    although the program dropped them."""
    check_interrupted(link.peer, BLOCKED[call])
    for _ in range(call.count("_") + 1):
        link.c.send(b"for the dropped ones")
    check_echo(link)


def test_a_request_goes_on(link):
    link.peer("r = c.irecv()")
    check_interrupted(link.peer, "r.wait()")
    link.c.send(b"later")
    assert link.peer("bytes(r.wait(60))") == b"later"
    check_echo(link)


@pytest.mark.parametrize(
    "call", ["c.send(data)", "c.isend(data).wait()", "c.send(data, timeout=60)"]
)
def test_sending(link, call):
    """Nothing receives. After the interrupt the message arrives as a whole or not at all."""
    link.peer("data = bytes(range(256)) * 40_000")
    check_interrupted(link.peer, call)
    link.peer.begin("c.send(b'next', tag=1); c.recv()")
    request = link.c.irecv(tag=0)
    assert link.c.recv(tag=1, timeout=BOUND) == b"next"
    if not request.cancel():
        assert request.wait(BOUND) == bytes(range(256)) * 40_000
    link.c.send(b"thanks")
    assert link.peer.result() == b"thanks"
    link.peer("data = None; gc.collect()")
    check_echo(link)


def test_an_active_message_keeps_its_header(link):
    """After Ctrl-C an active message completes, although the program has dropped the header
    object."""
    got = []
    link.session.on_message(7, lambda c, header, payload: got.append((header, len(payload))))
    link.peer("for _ in range(3000): c.isend(bytes(60_000), tag=3)")
    link.peer.begin("c.am_send(7, bytearray(b'head' * 500), bytes(5_000_000))")
    expect_soon(link.peer.sleeps)
    link.peer.send_signal(signal.SIGINT)
    try:
        link.peer.result()
        sent = True
    except KeyboardInterrupt:
        sent = False
    link.peer("gc.collect(); junk = [bytes(2000) for _ in range(1000)]")
    link.peer.begin("c.recv()")
    for _ in range(3000):
        assert link.c.recv(tag=3, timeout=BOUND) == bytes(60_000)
    expect_soon(lambda: link.session.progress() == 0 and (got or not sent))
    link.c.send(b"enough")
    link.peer.result()
    assert got in ([], [(b"head" * 500, 5_000_000)])
    assert got or not sent


def test_accepting(transport, start):
    peer = start({})
    peer("sock = session.listen('127.0.0.1')")
    check_interrupted(peer, "sock.accept()")
    check_interrupted(peer, "next(iter(sock))")
    other = start({})
    other.connect(peer("sock.address"))
    assert peer("c = sock.accept(60); bytes(c.recv())") == b"hello"


def test_opening(start):
    """SIGINT ends open() while the listener accepts the connection but never answers."""
    peer = start({})
    peer("silent = socket.create_server(('127.0.0.1', 0)); port = silent.getsockname()[1]")
    check_interrupted(peer, "session.connect(f'psp://127.0.0.1:{port}/nobody').open()")
    assert peer.finish() == 0


def test_closing(link):
    """Ctrl-C interrupts a close that waits for a silent peer; a second close still works."""
    link.peer("c.isend(bytes(10_000_000)) and None")
    link.peer.begin("session.close()")
    expect_soon(link.peer.sleeps)
    link.peer.send_signal(signal.SIGINT)
    with contextlib.suppress(KeyboardInterrupt):
        link.peer.result()
    link.peer("session.close()")
    link.peer(OPEN, config={})
    assert link.peer.finish() == 0


@pytest.mark.parametrize("call", sorted(BLOCKED.keys() - {"wait_all", "mprobe"}))
def test_a_handler_that_raises_nothing(link, call):
    """The call continues after a handler that raises nothing, and receives the message."""
    link.peer("signal.signal(signal.SIGUSR1, lambda *_: seen.append(1)); seen = []")
    link.peer.begin(BLOCKED[call])
    for _ in range(5):
        expect_soon(link.peer.sleeps)
        link.peer.send_signal(signal.SIGUSR1)
    link.c.send(b"at last")
    result = link.peer.result()
    assert "at last" in repr(result) or "nbytes=7" in repr(result)
    assert link.peer("len(seen) > 0")


def test_a_handler_uses_the_session(link):
    """A message arrives that a handler sends while its thread is blocked in a receive."""
    link.peer("signal.signal(signal.SIGUSR1, lambda *_: c.send(b'from the handler'))")
    link.peer.begin("bytes(c.recv())")
    expect_soon(link.peer.sleeps)
    link.peer.send_signal(signal.SIGUSR1)
    assert link.c.recv(timeout=BOUND) == b"from the handler"
    link.c.send(b"go on")
    assert link.peer.result() == b"go on"


def test_a_storm_of_signals(link):
    """No message is lost or duplicated while a timer sends a signal every millisecond."""
    link.peer(
        """
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        """
    )
    link.peer.begin(
        "[int.from_bytes(c.recv(), 'little') for _ in range(3000)] == list(range(3000))"
    )
    for i in range(3000):
        link.c.send(i.to_bytes(4, "little"))
    assert link.peer.result()
    link.peer.begin("for i in range(20): c.send(bytes([i]) * 500_000)")
    for i in range(20):
        assert link.c.recv(timeout=BOUND) == bytes([i]) * 500_000
    link.peer.result()
