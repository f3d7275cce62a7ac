"""A connection object lives exactly as long as it is referred to."""

from __future__ import annotations

import gc
import os
import weakref

import pytest
from puppets import BOUND, ONLY, check_echo, quiet_port

import pscompy
from tests.waiting import expect_soon


@pytest.fixture
def last(link):
    """A weak reference to the connection `link.c`."""
    return weakref.ref(link.c)


def drop(link):
    link.c = None


# ---- connections that have ended ----


def send_three(here):
    for i in range(3):
        here.c.send(bytes([i]) * 100, tag=i)


@pytest.mark.parametrize("how", ["close", "kill"])
def test_it_is_usable_after_its_end(link, last, transport, how):
    """Messages that had arrived are received first; state, statistics and explanation stay."""
    link.peer(send_three)
    link.c.probe(tag=2, timeout=BOUND)
    link.peer(lambda here: here.c.close()) if how == "close" else link.peer.kill()
    ended = {
        "close": (pscompy.ConnectionState.CLOSED, pscompy.Closed),
        "kill": (pscompy.ConnectionState.FAILED, pscompy.PeerLost),
    }
    state, error = ended[how]
    expect_soon(lambda: link.c.state is state)
    expect_soon(lambda: link.session._binding.connection(link.c._record.conn.id) is None)
    name = link.c.peer
    data, status = link.c.recv_status(tag=1)
    assert (bytes(data), status) == (bytes([1]) * 100, (link.c, 1, 100))
    assert link.c.mprobe(tag=2).recv() == bytes([2]) * 100
    assert link.c.irecv(bytearray(100)).wait() == (link.c, 0, 100)
    del status
    for call in (link.c.recv, link.c.probe, lambda: link.c.send(b"")):
        with pytest.raises(error):
            call()
    assert link.c.stats["received_messages"] == 4
    assert link.c.explain().choice == link.c.transport == transport
    assert name in repr(link.c)
    del call
    drop(link)
    assert last() is None


def send_unreceived(here):
    for i in range(50):
        here.c.send(bytes(1000), tag=i)
    return here.c.isend(bytes(1 << 20), tag=50)


def test_messages_that_nobody_receives_go_with_it(link, last):
    """Unreceived messages are freed with the connection; a Message that was matched keeps it
    alive."""
    link.peer(send_unreceived)
    message = link.c.mprobe(tag=49, timeout=BOUND)
    link.peer.kill()
    expect_soon(lambda: link.c.state is pscompy.ConnectionState.FAILED)
    drop(link)
    expect_soon(lambda: link.session._binding.connection(last()._record.conn.id) is None)
    assert message.recv() == bytes(1000)
    del message
    assert last() is None


def receive_and_close(here):
    assert here.c.recv() == bytes(8 << 20)
    here.c.close()


def test_requests_in_flight_keep_it(link, last):
    receive, send = link.c.irecv(tag=7), link.c.isend(bytes(8 << 20))
    drop(link)
    assert not receive.test()
    link.peer.begin(receive_and_close)
    assert send.wait(BOUND) is None
    link.peer.result()
    with pytest.raises(pscompy.Closed):
        receive.wait(BOUND)
    del send, receive
    expect_soon(lambda: last() is None)


def length_and_close(here):
    n = len(here.c.recv())
    here.c.close()
    return n


def test_a_request_that_is_dropped_with_it_completes(link, last):
    link.c.isend(bytes(8 << 20))
    drop(link)
    link.peer.begin(length_and_close)
    expect_soon(lambda: link.session.progress() == 0 and last() is None)
    assert link.peer.result() == 8 << 20


def test_while_it_is_up_it_stays(link, last):
    """An open connection that the program has dropped stays alive, because handlers may still
    get it."""
    seen = []
    link.session.on_message(3, lambda c, header, payload: seen.append((c, header)))
    name = link.c.peer
    drop(link)
    gc.collect()
    link.peer(lambda here: here.c.am_send(3, b"here", b""))
    expect_soon(lambda: link.session.progress() == 0 and seen)
    assert [(c.peer, header) for c, header in seen] == [(name, b"here")]
    assert seen.pop()[0] is last()
    link.peer(lambda here: here.c.close())
    expect_soon(lambda: last() is None)


def send_active_and_close(here):
    for i in range(20):
        here.c.am_send(3, bytes([i]), b"")
    here.c.close()


def test_a_message_that_waits_for_its_handler_keeps_it(link, last):
    """The message has arrived and the connection has ended before the program calls the library."""
    seen = []
    link.session.on_message(3, lambda c, header, payload: seen.append((c, header)))
    held, number, name = link.session._binding, link.c._record.conn.id, link.c.peer
    drop(link)
    link.peer(send_active_and_close)
    expect_soon(lambda: last().state is pscompy.ConnectionState.CLOSED)
    gc.collect()
    assert held.connection(number) is not None
    assert not seen
    expect_soon(lambda: link.session.progress() == 0 and len(seen) == 20)
    assert [(c.peer, header) for c, header in seen] == [(name, bytes([i])) for i in range(20)]
    expect_soon(lambda: held.connection(number) is None)
    seen.clear()
    assert last() is None


def say_bye(here):
    here.c.send(b"and bye")
    here.c.close()


def test_the_accept_queue_keeps_it(transport, start, open_session):
    """A connection that opens and ends before the program accepts it stays in the accept queue."""
    session = open_session(**ONLY[transport])
    sock = session.listen("127.0.0.1")
    peer = start(ONLY[transport])
    peer.connect(sock.address)
    peer(say_bye)
    expect_soon(lambda: peer(lambda here: here.c.state.name) == "CLOSED")
    gc.collect()
    c = sock.accept(timeout=BOUND)
    assert [bytes(c.recv()), bytes(c.recv())] == [b"hello", b"and bye"]
    with pytest.raises(pscompy.Closed):
        c.recv()
    last = weakref.ref(c)
    del c
    expect_soon(lambda: last() is None)


# ---- connections that were never opened ----


def test_a_lazy_one_goes_at_once(open_session):
    session = open_session()
    last = weakref.ref(session.connect("psp://127.0.0.1:1/nobody"))
    assert last() is None


def test_one_that_cannot_be_made_goes(open_session):
    """A program that retries with a fresh connection object each time keeps none of the failed
    ones."""
    session = open_session(RETRY=0)
    refused = []
    for _ in range(20):
        c = session.connect("psp://127.0.0.1:1/nobody")
        with pytest.raises(pscompy.ConnectError):
            c.open(BOUND)
        refused.append(weakref.ref(c))
        del c
    expect_soon(lambda: not any(ref() for ref in refused))


def test_one_that_could_not_be_made_may_be_used_again(transport, open_session):
    here, there = open_session(RETRY=0, **ONLY[transport]), open_session(**ONLY[transport])
    port = quiet_port()
    sock = there.listen("127.0.0.1", port)
    address = sock.address
    sock.close()
    c = here.connect(address)
    seen = []
    here.on_message(1, lambda source, *_: seen.append(source))

    def closed():
        try:
            c.open(BOUND)
        except pscompy.ConnectError:
            return True
        c.close()
        return False

    expect_soon(closed)
    sock = there.listen("127.0.0.1", port)
    c.open(BOUND)
    accepted = sock.accept(timeout=BOUND)
    accepted.am_send(1, b"", b"")
    expect_soon(lambda: here.progress() == 0 and seen)
    assert seen == [c]


# ---- sessions ----


def send_two(here):
    here.c.send(b"left")
    here.c.send(b"taken", tag=1)


def test_it_outlives_its_session(link, last):
    """A connection object outlives its session and still reports its peer and state."""
    message = link.peer(send_two)
    message = link.c.mprobe(tag=1, timeout=BOUND)
    link.session.close()
    link.session = link.sock = None
    gc.collect()
    assert link.c.state is pscompy.ConnectionState.CLOSED
    assert link.c.stats == {}
    assert link.c.explain().choice == link.c.transport
    for call in (link.c.recv, lambda: link.c.send(b""), link.c.open, message.recv):
        with pytest.raises(pscompy.Closed):
            call()
    del message, call
    drop(link)
    gc.collect()
    assert last() is None


def test_a_child_drops_it_without_effect(link):
    """The child drops the connection, and its exit does not disturb the parent's connection."""
    pid = os.fork()
    if not pid:
        drop(link)
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    check_echo(link)
