"""The end of sessions and connections: in order, from another thread, and with the interpreter."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading

import pytest
from puppets import BOUND, ONLY, listen, open_session_there, own_descriptors

import pscompy
from tests.program import program
from tests.waiting import asleep, expect_soon, once_blocked

MESSAGES = 200


@pytest.fixture
def hasty(connect, transport):
    """A link for tests whose close cannot complete: it waits for only 3 s."""
    return connect(transport, SHUTDOWN_TIMEOUT=3)


def exchange_and_close(here):
    sent = [here.c.isend(bytes([i]) * 5000) for i in range(200)]
    got = [bytes(here.c.recv()) for _ in range(200)]
    pscompy.wait_all(sent)
    here.c.close()
    return [message == bytes([i]) * 5000 for i, message in enumerate(got)].count(True)


def test_in_order_with_data_in_flight_both_ways(link):
    """Both sides send much and then close: all messages sent before the close arrive."""
    link.peer.begin(exchange_and_close)
    sent = [link.c.isend(bytes([i]) * 5000) for i in range(MESSAGES)]
    for i in range(MESSAGES):
        assert link.c.recv(timeout=BOUND) == bytes([i]) * 5000
    pscompy.wait_all(sent, timeout=BOUND)
    link.c.close()
    assert link.peer.result() == MESSAGES


def post_and_close(here, nbytes):
    for i in range(8):
        here.c.isend(bytes([i]) * nbytes)
    here.c.close()


@pytest.mark.parametrize("nbytes", [10, 3000, 100_000, 5_000_000])
def test_what_was_sent_before_the_close_arrives(link, nbytes):
    """The peer posts its sends and closes at once: the messages are still sent and are received
    before the end."""
    link.peer(
        post_and_close,
        nbytes=nbytes,
    )
    for i in range(8):
        assert link.c.recv(timeout=BOUND) == bytes([i]) * nbytes
    with pytest.raises(pscompy.Closed):
        link.c.recv(timeout=BOUND)
    with pytest.raises(pscompy.Closed):
        link.c.send(b"too late")


def send_and_close(here):
    for i in range(3):
        here.c.send(bytes([i]), tag=i)
    here.c.close()


def test_what_is_left_names_its_source(link):
    """Messages that are left keep their source when only the program still refers to the
    connection."""
    link.peer(send_and_close)
    expect_soon(lambda: link.c.state is pscompy.ConnectionState.CLOSED)
    link.sock.close()
    gc.collect()
    assert link.c.probe(1) == (link.c, 1, 1)
    for i in range(3):
        assert link.c.recv_status() == (bytes([i]), (link.c, i, 1))
    with pytest.raises(pscompy.Closed):
        link.c.recv()


def send_and_close_active(here):
    for i in range(20):
        here.c.am_send(5, bytes([i]), b"")
    here.c.close()


def test_a_handler_learns_who_it_was(link):
    """A handler gets its connection even if that has ended before its last messages are
    delivered."""
    seen = []
    link.session.on_message(5, lambda c, header, payload: seen.append((c, bytes(header))))
    peer = link.c.peer
    link.c = None
    link.peer(send_and_close_active)
    expect_soon(lambda: link.peer(lambda here: here.c.state.name) == "CLOSED")
    expect_soon(lambda: link.session.progress() == 0 and len(seen) == 20)
    assert [header for _, header in seen] == [bytes([i]) for i in range(20)]
    assert {c.peer for c, _ in seen} == {peer}


def post_and_close_session(here):
    for i in range(8):
        here.c.isend(bytes([i]) * 300_000)
    here.session.close()


def test_what_was_sent_before_the_session_closed_arrives(link):
    link.peer.begin(post_and_close_session)
    for i in range(8):
        assert link.c.recv(timeout=BOUND) == bytes([i]) * 300_000
    link.peer.result()
    with pytest.raises(pscompy.Closed):
        link.c.recv(timeout=BOUND)


def test_a_connection_that_is_closing_does_not_open(link):
    link.c.close()
    with pytest.raises(pscompy.Closed):
        link.c.open(BOUND)


def test_close_is_idempotent(link):
    link.c.close()
    link.c.close()
    link.session.close()
    link.session.close()
    with pytest.raises(pscompy.Closed):
        link.session.listen()
    assert link.c.state is pscompy.ConnectionState.CLOSED


def close_while_blocked(here, what, call):
    def close():
        while not asleep(main):
            pass
        (here.c if what == "c" else here.session).close()

    main = threading.get_native_id()
    closer = threading.Thread(target=close)
    closer.start()
    try:
        call(here)
        return "completed"
    except pscompy.Closed:
        return "closed"
    finally:
        closer.join()


BLOCKED = {
    "recv": lambda here: here.c.recv(),
    "probe": lambda here: here.c.probe(),
    "send": lambda here: here.c.send(bytes(20 << 20)),
    "wait": lambda here: here.c.irecv().wait(),
}


@pytest.mark.parametrize("what", ["c", "session"])
@pytest.mark.parametrize("call", BLOCKED)
def test_close_from_another_thread_wakes(hasty, what, call):
    """A blocked call ends with Closed if another thread closes what it waits for."""
    assert hasty.peer(close_while_blocked, what, BLOCKED[call]) == "closed"


def test_close_wakes_accept(link):
    once_blocked(link.sock.close)
    with pytest.raises(pscompy.Closed):
        link.sock.accept()


def close_in_a_callback():
    """Calls `close` in a callback that `close` runs."""
    world = pscompy.World()
    request = world.irecv()
    request.add_done_callback(lambda _: world.close())
    world.close()
    print(request.done())


def accept_in_a_callback():
    """Leaves to the end of the interpreter a connection that nobody has seen."""
    here, there = pscompy.Session("here"), pscompy.Session("there")
    accepting = here.listen().iaccept()
    accepting.add_done_callback(lambda _: here.close())
    there.connect(accepting.sock.address).open()
    expect_soon(lambda: accepting.arrival)
    print(True)


@pytest.mark.parametrize("main", [close_in_a_callback, accept_in_a_callback])
def test_close_in_a_callback_of_close(main):
    code = [sys.executable, "-c", program(main)]
    ended = subprocess.run(code, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_close_of_a_peer_that_is_silent_is_bounded(hasty):
    """Closing a session is bounded in time although the stopped peer answers nothing."""
    hasty.peer.stop()
    thread = threading.Thread(target=hasty.session.close)
    thread.start()
    thread.join(BOUND)
    assert not thread.is_alive()


def stop_a_loop(here):
    here.loop = asyncio.new_event_loop()
    here.task = here.loop.create_task(asyncio.wait_for(here.c.irecv(), 60))
    here.loop.call_soon(here.loop.stop)
    here.loop.run_forever()


# What each of these functions returns stays open until the interpreter exits.
EXITS = {
    "a session": lambda here: None,
    "a posted receive": lambda here: here.c.irecv(bytearray(10)),
    "a posted receive without buffer": lambda here: here.c.irecv(),
    "unfinished sends": lambda here: [here.c.isend(bytes(10_000_000)) for _ in range(3)],
    "dropped sends": lambda here: [here.c.isend(bytes(10_000_000)) and None for _ in range(3)],
    "an unreachable peer": lambda here: here.session.connect("psp://127.0.0.1:9").isend(b"x"),
    "a thread that receives": lambda here: threading.Thread(
        target=lambda: here.c.recv(), daemon=True
    ).start(),
    "a socket": lambda here: here.session.listen(),
    "a closed connection": lambda here: here.c.close(),
    "a received message": lambda here: here.c.probe(),
    "a cycle of objects": lambda here: setattr(here.session, "me", [here.c.recv, here.session]),
    "an event loop": stop_a_loop,
}


def leave_open(here, do):
    here.kept = do(here)


@pytest.mark.parametrize("open_things", EXITS)
def test_interpreter_exit(hasty, open_things):
    """The interpreter exits with code 0 in bounded time while the object of EXITS is open."""
    hasty.c.send(b"for the probe")
    hasty.peer(leave_open, EXITS[open_things])
    assert hasty.peer.finish() == 0
    with pytest.raises((pscompy.Closed, pscompy.PeerLost)):
        while True:
            hasty.c.recv(timeout=BOUND)


def send_fifty(here):
    for i in range(50):
        here.c.send(bytes([i]) * 100)


def test_exit_without_close_after_messages(link):
    """The program exits without closing: its messages are received, then the end of the
    connection."""
    link.peer(send_fifty)
    assert link.peer.finish() == 0
    for i in range(50):
        assert link.c.recv(timeout=BOUND) == bytes([i]) * 100
    with pytest.raises((pscompy.Closed, pscompy.PeerLost)):
        link.c.recv(timeout=BOUND)


def send_and_exit(here):
    here.c.send(b"last")
    os._exit(0)


def test_os_exit_without_close(link):
    link.peer.begin(send_and_exit)
    assert link.c.recv(timeout=BOUND) == b"last"
    with pytest.raises(pscompy.PeerLost):
        link.c.recv(timeout=BOUND)


def connect_and_send(here, address):
    here.c = here.session.connect(address)
    here.c.send(bytes(100))


def accept_other(here):
    here.d = here.sock.accept(60)
    here.m = here.d.recv()


def close_and_drop(here):
    here.session.close()
    del here.c, here.session
    gc.collect()


def test_sessions_leave_nothing_behind(transport, start, key):
    """30 sessions, each with a connection to a long-lived peer, leave no descriptors and no
    memory."""
    server = start(ONLY[transport])
    address = server(listen)
    client = start(ONLY[transport])
    client(lambda here: here.session.close())
    counts, resident = [], []

    def taken():
        return client.resident() + server.resident()

    for _ in range(30):
        client(open_session_there, ONLY[transport])
        client(connect_and_send, address=address)
        server(accept_other)
        client(close_and_drop)
        counts.append((client.descriptors(), server.descriptors()))
        resident.append(taken())
    expect_soon(lambda: client.descriptors() <= counts[4][0])
    expect_soon(lambda: server.descriptors() <= counts[4][1])
    expect_soon(lambda: taken() - resident[4] < 8 << 20)


def test_own_descriptors_are_counted():
    """own_descriptors() counts a file that is opened; other tests rely on it."""
    before = own_descriptors()
    with open("/dev/null"):
        assert own_descriptors() == before + 1
