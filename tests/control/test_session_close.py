"""Closing sessions and connections leaves nothing behind."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from peers import TRANSPORTS, only
from processes import Child

from pscompy import Closed, ConnectionState, Session
from pscompy.control.candidates import Candidates
from pscompy.control.dialer import Attempt
from pscompy.control.handshake.handshake import Handshake
from pscompy.control.negotiation import Negotiation
from pscompy.control.peer import Record
from pscompy.control.precon import Precon
from tests.program import program
from tests.waiting import asleep, expect_soon

Make = Callable[..., Session]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_closing_is_an_end_in_order_on_both_sides(session: Make, transport: str) -> None:
    server, client = session(**only(transport)), session(**only(transport))
    socket = server.listen()
    out = client.connect(socket.address)
    out.send(b"last words", timeout=60)
    into = socket.accept(60)
    client.close()
    assert bytes(into.recv(timeout=60)) == b"last words"
    with pytest.raises(Closed):
        into.recv(timeout=60)
    assert into.state is ConnectionState.CLOSED


def test_close_is_idempotent_and_what_is_closed_says_so(session: Make) -> None:
    own = session()
    socket = own.listen()
    connection = own.connect(socket.address)
    own.close()
    own.close()
    for use in (
        own.listen,
        lambda: own.connect("host:1"),
        lambda: own.stats,
        own.progress,
        own.fileno,
        lambda: connection.send(b""),
        lambda: connection.open(1),
        socket.accept,
    ):
        with pytest.raises(Closed):
            use()
    assert connection.state is ConnectionState.CLOSED
    socket.close()
    connection.close()


def test_close_wakes_what_waits_in_other_threads(session: Make) -> None:
    server, client = session(), session()
    socket = server.listen()
    connection = client.connect(socket.address)
    connection.open(60)
    ended: list[str] = []

    def wait(call: Callable[[], object]) -> None:
        try:
            call()
        except Closed:
            ended.append("closed")

    waiting = [
        threading.Thread(target=wait, args=(call,))
        for call in (connection.recv, client.listen().accept)
    ]
    for thread in waiting:
        thread.start()
        while not asleep(thread.native_id or 0):
            pass
    client.close()
    for thread in waiting:
        thread.join(60)
    assert ended == ["closed", "closed"]


def test_close_from_several_threads(session: Make) -> None:
    own = session()
    own.connect(own.listen().address).open(60)
    closing = [threading.Thread(target=own.close) for _ in range(4)]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(60)
        assert not thread.is_alive()


def test_sessions_leave_no_descriptors_and_no_threads(session: Make) -> None:
    def use() -> None:
        with Session() as one, Session() as two:
            socket = one.listen()
            connection = two.connect(socket.address)
            connection.send(b"x", timeout=60)
            socket.accept(60).recv(timeout=60)
            two.arm()

    use()
    gc.collect()
    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    for _ in range(5):
        use()
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) <= descriptors
    assert set(threading.enumerate()) <= threads


def test_open_connections_keep_no_candidates(session: Make) -> None:
    server, client = session(), session()
    socket = server.listen("127.0.0.1")
    connections = [client.connect(socket.address) for _ in range(3)]
    for connection in connections:
        connection.open(60)
    connections += [socket.accept(60) for _ in range(3)]
    expect_soon(lambda: not any(isinstance(it, Candidates) for it in gc.get_objects()))
    assert {it.state for it in connections} == {ConnectionState.UP}


def test_ended_connections_leave_no_garbage(session: Make) -> None:
    """The parts of a connection form no reference cycle, so they do not wait for the garbage
    collector."""
    kinds = (Handshake, Negotiation, Candidates, Precon, Attempt, Record)

    def count() -> Counter[str]:
        return Counter(type(it).__name__ for it in gc.get_objects() if isinstance(it, kinds))

    server, client = session(), session()
    socket = server.listen("127.0.0.1")
    gc.collect()
    before = count()
    gc.disable()
    try:
        for _ in range(3):
            connection = client.connect(socket.address)
            connection.send(b"x", timeout=60)
            accepted = socket.accept(60)
            assert bytes(accepted.recv(timeout=60)) == b"x"
            connection.close()
            with pytest.raises(Closed):
                accepted.recv(timeout=60)
        del connection, accepted
        expect_soon(lambda: count() == before)
    finally:
        gc.enable()


def test_lazy_connections_cost_no_thread_and_no_peer(session: Make) -> None:
    own = session()
    before = set(threading.enumerate())
    connections = [own.connect(f"192.0.2.1:{port}") for port in range(1, 201)]
    assert set(threading.enumerate()) <= before
    assert {connection.state for connection in connections} == {ConnectionState.LAZY}
    start = time.monotonic()
    own.close()
    assert time.monotonic() - start < 60  # one second per connection would be too much


def leave_open(last: str) -> None:
    import __main__
    import pscompy

    session = pscompy.Session()
    socket = session.listen()
    connection = session.connect(socket.address)
    connection.open(60)
    pending = connection.irecv()
    print("ready", flush=True)
    __main__.kept = [pending] if last == "drop" else [pending, session, socket, connection]
    if last == "exit":
        raise SystemExit(3)
    if last == "error":
        raise ZeroDivisionError


@pytest.mark.parametrize(("last", "code"), [("", 0), ("drop", 0), ("exit", 3), ("error", 1)])
def test_the_interpreter_ends_with_requests_open(last: str, code: int) -> None:
    with Child(program(leave_open, last)) as child:
        assert child.line() == "ready"
        ended, _, errors = child.end(30)
    assert ended == code, errors


def test_what_stays_in_its_process_refuses_to_be_pickled(session: Make) -> None:
    own = session()
    socket = own.listen()
    for thing in (own, socket, own.connect(socket.address)):
        with pytest.raises(TypeError, match=r"stays in its process.*address"):
            pickle.dumps(thing)
