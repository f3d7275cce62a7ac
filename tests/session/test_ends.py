"""The end of sessions and connections: in order, from another thread, and with the interpreter."""

from __future__ import annotations

import gc
import threading

import pytest
from puppets import BOUND, ONLY, OPEN, own_descriptors

import pscompy
from tests.waiting import expect_soon

MESSAGES = 200


@pytest.fixture
def link(connect, transport):
    return connect(transport)


@pytest.fixture
def hasty(connect, transport):
    """A link for tests whose close cannot complete: it waits for only 3 s."""
    return connect(transport, SHUTDOWN_TIMEOUT=3)


def test_in_order_with_data_in_flight_both_ways(link):
    """Both sides send much and then close: all messages sent before the close arrive."""
    link.peer.begin(
        """
        sent = [c.isend(bytes([i]) * 5000) for i in range(200)]
        got = [bytes(c.recv()) for _ in range(200)]
        pscompy.wait_all(sent)
        c.close()
        [message == bytes([i]) * 5000 for i, message in enumerate(got)].count(True)
        """
    )
    sent = [link.c.isend(bytes([i]) * 5000) for i in range(MESSAGES)]
    for i in range(MESSAGES):
        assert link.c.recv(timeout=BOUND) == bytes([i]) * 5000
    pscompy.wait_all(sent, timeout=BOUND)
    link.c.close()
    assert link.peer.result() == MESSAGES


@pytest.mark.parametrize("nbytes", [10, 3000, 100_000, 5_000_000])
def test_what_was_sent_before_the_close_arrives(link, nbytes):
    """The peer posts its sends and closes at once: the messages are still sent and are received
    before the end."""
    link.peer(
        """
        for i in range(8):
            c.isend(bytes([i]) * nbytes)
        c.close()
        """,
        nbytes=nbytes,
    )
    for i in range(8):
        assert link.c.recv(timeout=BOUND) == bytes([i]) * nbytes
    with pytest.raises(pscompy.Closed):
        link.c.recv(timeout=BOUND)
    with pytest.raises(pscompy.Closed):
        link.c.send(b"too late")


def test_what_is_left_names_its_source(link):
    """Messages that are left keep their source when only the program still refers to the
    connection."""
    link.peer("for i in range(3): c.send(bytes([i]), tag=i)\nc.close()")
    expect_soon(lambda: link.c.state is pscompy.ConnectionState.CLOSED)
    link.sock.close()
    gc.collect()
    assert link.c.probe(1) == (link.c, 1, 1)
    for i in range(3):
        assert link.c.recv_status() == (bytes([i]), (link.c, i, 1))
    with pytest.raises(pscompy.Closed):
        link.c.recv()


def test_a_handler_learns_who_it_was(link):
    """A handler gets its connection even if that has ended before its last messages are
    delivered."""
    seen = []
    link.session.on_message(5, lambda c, header, payload: seen.append((c, bytes(header))))
    peer = link.c.peer
    link.c = None
    link.peer("for i in range(20): c.am_send(5, bytes([i]), b'')\nc.close()")
    expect_soon(lambda: link.peer("c.state.name") == "CLOSED")
    expect_soon(lambda: link.session.progress() == 0 and len(seen) == 20)
    assert [header for _, header in seen] == [bytes([i]) for i in range(20)]
    assert {c.peer for c, _ in seen} == {peer}


def test_what_was_sent_before_the_session_closed_arrives(link):
    link.peer.begin("for i in range(8): c.isend(bytes([i]) * 300_000)\nsession.close()")
    for i in range(8):
        assert link.c.recv(timeout=BOUND) == bytes([i]) * 300_000
    link.peer.result()
    with pytest.raises(pscompy.Closed):
        link.c.recv(timeout=BOUND)


def test_close_is_idempotent(link):
    link.c.close()
    link.c.close()
    link.session.close()
    link.session.close()
    with pytest.raises(pscompy.Closed):
        link.session.listen()
    assert link.c.state is pscompy.ConnectionState.CLOSED


@pytest.mark.parametrize("what", ["c", "session"])
@pytest.mark.parametrize("call", ["recv()", "probe()", "send(bytes(20 << 20))", "irecv().wait()"])
def test_close_from_another_thread_wakes(hasty, what, call):
    """A blocked call ends with Closed if another thread closes what it waits for."""
    hasty.peer.begin(
        """
        def close():
            while open(f"/proc/self/task/{main}/stat").read().rpartition(")")[2].split()[0] != "S":
                pass
            (c if what == "c" else session).close()

        main = threading.get_native_id()
        closer = threading.Thread(target=close)
        closer.start()
        try:
            eval("c." + call)
        except pscompy.Closed:
            outcome = "closed"
        closer.join()
        outcome
        """,
        what=what,
        call=call,
    )
    assert hasty.peer.result() == "closed"


def test_close_wakes_accept(link):
    threading.Timer(0.2, link.sock.close).start()
    with pytest.raises(pscompy.Closed):
        link.sock.accept()


def test_close_of_a_peer_that_is_silent_is_bounded(hasty):
    """Closing a session is bounded in time although the stopped peer answers nothing."""
    hasty.peer.send_signal(19)
    thread = threading.Thread(target=hasty.session.close)
    thread.start()
    thread.join(BOUND)
    assert not thread.is_alive()


EXITS = {
    "a session": "pass",
    "a posted receive": "r = c.irecv(bytearray(10))",
    "a posted receive without buffer": "r = c.irecv()",
    "unfinished sends": "r = [c.isend(bytes(10_000_000)) for _ in range(3)]",
    "dropped sends": "[c.isend(bytes(10_000_000)) and None for _ in range(3)]",
    "an unreachable peer": "r = session.connect('tcp:127.0.0.1:9').isend(b'x')",
    "a thread that receives": "threading.Thread(target=lambda: c.recv(), daemon=True).start()",
    "a socket": "sock = session.listen()",
    "a closed connection": "c.close()",
    "a received message": "held = c.probe()",
    "a cycle of objects": "session.me = [c.recv, session]",
    "an event loop": "import asyncio; loop = asyncio.new_event_loop(); t = loop.create_task("
    "asyncio.wait_for(c.irecv(), 60)); loop.call_soon(loop.stop); loop.run_forever()",
}


@pytest.mark.parametrize("open_things", EXITS)
def test_interpreter_exit(hasty, open_things):
    """The interpreter exits with code 0 in bounded time while the object of EXITS is open."""
    hasty.c.send(b"for the probe")
    hasty.peer("try:\n  exec(do)\nexcept pscompy.PscomError as e: print(e)", do=EXITS[open_things])
    assert hasty.peer.finish() == 0
    with pytest.raises((pscompy.Closed, pscompy.PeerLost)):
        while True:
            hasty.c.recv(timeout=BOUND)


def test_exit_without_close_after_messages(link):
    """The program exits without closing: its messages are received, then the end of the
    connection."""
    link.peer("for i in range(50): c.send(bytes([i]) * 100)")
    assert link.peer.finish() == 0
    for i in range(50):
        assert link.c.recv(timeout=BOUND) == bytes([i]) * 100
    with pytest.raises((pscompy.Closed, pscompy.PeerLost)):
        link.c.recv(timeout=BOUND)


def test_os_exit_without_close(link):
    link.peer.begin("c.send(b'last'); os._exit(0)")
    assert link.c.recv(timeout=BOUND) == b"last"
    with pytest.raises(pscompy.PeerLost):
        link.c.recv(timeout=BOUND)


def test_sessions_leave_nothing_behind(transport, start, key):
    """30 sessions, each with a connection to a long-lived peer, leave no descriptors and no
    memory."""
    server = start(ONLY[transport])
    address = server("sock = session.listen('127.0.0.1'); sock.address")
    client = start(ONLY[transport])
    client("session.close()")
    counts, resident = [], []

    def taken():
        return client.resident() + server.resident()

    for _ in range(30):
        client(OPEN, config=ONLY[transport])
        client("c = session.connect(address); c.send(bytes(100))", address=address)
        server("d = sock.accept(60); m = d.recv()")
        client("session.close(); del c, session; gc.collect()")
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
