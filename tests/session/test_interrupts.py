"""Ctrl-C and other signals during calls that block. A call ends with KeyboardInterrupt, or
continues if the handler raises nothing; the session works afterwards and no message is lost.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading

import pytest
from puppets import BOUND, accept, check_echo, listen, open_session_there

import pscompy
from tests.waiting import expect_soon, state_of


def check_interrupted(peer, call):
    """Send SIGINT while `call` blocks in the puppet, and check that it raises KeyboardInterrupt."""
    peer.begin(call)
    expect_soon(peer.sleeps)
    peer.send_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        peer.result()


BLOCKED = {
    "recv": lambda here: here.c.recv(),
    "recv into": lambda here: here.c.recv(bytearray(100)),
    "recv_status": lambda here: here.c.recv_status(),
    "recv with timeout": lambda here: here.c.recv(timeout=60),
    "probe": lambda here: here.c.probe(),
    "mprobe": lambda here: here.c.mprobe(),
    "wait": lambda here: here.c.irecv().wait(),
    "wait_all": lambda here: pscompy.wait_all([here.c.irecv(), here.c.irecv()]),
    "wait_any": lambda here: pscompy.wait_any([here.c.irecv(), here.c.irecv()]),
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
    """When the wait is interrupted, the program drops the requests; they take no messages."""
    check_interrupted(link.peer, BLOCKED[call])
    check_echo(link)


def post_receive(here):
    here.r = here.c.irecv()


def test_a_request_goes_on(link):
    link.peer(post_receive)
    check_interrupted(link.peer, lambda here: here.r.wait())
    link.c.send(b"later")
    assert link.peer(lambda here: bytes(here.r.wait(60))) == b"later"
    check_echo(link)


def wait_for_an_object(here):
    """Another thread takes SIGINT, so that the wait goes on until the object has arrived."""

    def interrupt():
        while state_of(os.getpid()) != "S":  # the main thread waits
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        here.c.send(b"now")

    here.request = here.c.irecv_obj()
    threading.Thread(target=interrupt).start()
    here.request.wait()


def test_an_object_arrives_with_an_interrupt(link):
    """The wait raises the interrupt, and not the call-back that takes the object's head."""
    for number in range(10):
        link.peer.begin(wait_for_an_object)
        assert link.c.recv(timeout=BOUND) == b"now"
        sent = link.c.isend_obj([number])
        with pytest.raises(KeyboardInterrupt):
            link.peer.result()
        assert link.peer(lambda here: here.request.wait(timeout=60)) == [number]
        sent.wait(timeout=BOUND)


def send_next(here):
    here.c.send(b"next", tag=1)
    return here.c.recv()


DATA = bytes(range(256)) * 40_000
SENDING = {
    "send": lambda here: here.c.send(here.data),
    "wait": lambda here: here.c.isend(here.data).wait(),
    "send with timeout": lambda here: here.c.send(here.data, timeout=60),
}


@pytest.mark.parametrize("call", SENDING)
def test_sending(link, call):
    """The peer posts no receive. After the interrupt the whole message arrives, or nothing."""
    link.peer(lambda here: setattr(here, "data", DATA))
    check_interrupted(link.peer, SENDING[call])
    link.peer.begin(send_next)
    request = link.c.irecv(tag=0)
    assert link.c.recv(tag=1, timeout=BOUND) == b"next"
    if not request.cancel():
        assert request.wait(BOUND) == DATA
    link.c.send(b"thanks")
    assert link.peer.result() == b"thanks"
    link.peer(lambda here: setattr(here, "data", None) or gc.collect())
    check_echo(link)


def post_many(here):
    for _ in range(3000):
        here.c.isend(bytes(60_000), tag=3)


def reuse_memory(here):
    gc.collect()
    here.junk = [bytes(2000) for _ in range(1000)]


def test_an_active_message_keeps_its_header(link):
    """After Ctrl-C an active message completes, although the program has dropped the header
    object."""
    got = []
    link.session.on_message(7, lambda c, header, payload: got.append((header, len(payload))))
    link.peer(post_many)
    link.peer.begin(lambda here: here.c.am_send(7, bytearray(b"head" * 500), bytes(5_000_000)))
    expect_soon(link.peer.sleeps)
    link.peer.send_signal(signal.SIGINT)
    try:
        link.peer.result()
        sent = True
    except KeyboardInterrupt:
        sent = False
    link.peer(reuse_memory)
    link.peer.begin(lambda here: here.c.recv())
    for _ in range(3000):
        assert link.c.recv(tag=3, timeout=BOUND) == bytes(60_000)
    expect_soon(lambda: link.session.progress() == 0 and (got or not sent))
    link.c.send(b"enough")
    link.peer.result()
    assert got in ([], [(b"head" * 500, 5_000_000)])
    assert got or not sent


def test_accepting(transport, start):
    peer = start({})
    peer(listen)
    check_interrupted(peer, lambda here: here.sock.accept())
    check_interrupted(peer, lambda here: next(iter(here.sock)))
    other = start({})
    other.connect(peer(lambda here: here.sock.address))
    assert peer(accept) == b"hello"


def listen_silently(here):
    here.silent = socket.create_server(("127.0.0.1", 0))
    return f"psp://127.0.0.1:{here.silent.getsockname()[1]}/nobody"


def test_opening(start):
    """SIGINT ends open() while the listener accepts the connection but never answers."""
    peer = start({})
    address = peer(listen_silently)
    check_interrupted(peer, lambda here: here.session.connect(address).open())
    assert peer.finish() == 0


def test_closing(link):
    """Ctrl-C interrupts a close that waits for a silent peer; a second close still works."""
    link.peer(lambda here: here.c.isend(bytes(10_000_000)) and None)
    link.peer.begin(lambda here: here.session.close())
    expect_soon(link.peer.sleeps)
    link.peer.send_signal(signal.SIGINT)
    with contextlib.suppress(KeyboardInterrupt):
        link.peer.result()
    link.peer(lambda here: here.session.close())
    link.peer(open_session_there, {})
    assert link.peer.finish() == 0


def count_signals(here):
    signal.signal(signal.SIGUSR1, lambda *_: here.seen.append(1))
    here.seen = []


@pytest.mark.parametrize("call", sorted(BLOCKED.keys() - {"wait_all", "mprobe"}))
def test_a_handler_that_raises_nothing(link, call):
    """The call continues after a handler that raises nothing, and receives the message."""
    link.peer(count_signals)
    link.peer.begin(BLOCKED[call])
    for _ in range(5):
        expect_soon(link.peer.sleeps)
        link.peer.send_signal(signal.SIGUSR1)
    link.c.send(b"at last")
    result = link.peer.result()
    assert "at last" in repr(result) or "nbytes=7" in repr(result)
    assert link.peer(lambda here: len(here.seen) > 0)


def test_a_handler_uses_the_session(link):
    """A message arrives that a handler sends while its thread is blocked in a receive."""
    link.peer(
        lambda here: signal.signal(signal.SIGUSR1, lambda *_: here.c.send(b"from the handler"))
    )
    link.peer.begin(lambda here: bytes(here.c.recv()))
    expect_soon(link.peer.sleeps)
    link.peer.send_signal(signal.SIGUSR1)
    assert link.c.recv(timeout=BOUND) == b"from the handler"
    link.c.send(b"go on")
    assert link.peer.result() == b"go on"


def start_timer(here):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


def send_large(here):
    for i in range(20):
        here.c.send(bytes([i]) * 500_000)


def test_a_storm_of_signals(link):
    """No message is lost or duplicated while a timer sends a signal every millisecond."""
    link.peer(start_timer)
    link.peer.begin(
        lambda here: (
            [int.from_bytes(here.c.recv(), "little") for _ in range(3000)] == list(range(3000))
        )
    )
    for i in range(3000):
        link.c.send(i.to_bytes(4, "little"))
    assert link.peer.result()
    link.peer.begin(send_large)
    for i in range(20):
        assert link.c.recv(timeout=BOUND) == bytes([i]) * 500_000
    link.peer.result()
