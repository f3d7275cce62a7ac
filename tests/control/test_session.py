"""Sessions and sockets of one process: listen, connect, accept."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable

import pytest
from peers import TRANSPORTS, only

import pscompy
from pscompy import Closed, ConnectError, ConnectionState, Session, Timeout
from tests.waiting import expect_soon

Make = Callable[..., Session]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_sessions_talk(session: Make, transport: str) -> None:
    one, two = session("one", **only(transport)), session("two", **only(transport))
    socket = one.listen()
    there = two.connect(socket.address)
    assert there.state is ConnectionState.LAZY
    assert there.transport == ""
    sent = there.isend(b"hello")
    here = socket.accept(60)
    assert bytes(here.recv()) == b"hello"
    here.send(b"and back")
    assert bytes(there.recv()) == b"and back"
    sent.wait(60)
    assert here.transport == there.transport == transport
    assert (here.peer.split()[0], there.peer.split()[0]) == ("two", "one")
    assert one.stats["connections_up"] == two.stats["connections_up"] == 1


def test_the_signatures_are_those_that_programs_use() -> None:
    signatures: dict[Callable[..., object], dict[str, object]] = {
        Session: {"name": None, "config": None},
        Session.listen: {"host": None, "port": 0},
        Session.connect: {"address": inspect.Parameter.empty},
        Session.register: {"buf": inspect.Parameter.empty},
        Session.on_message: dict.fromkeys(("id", "handler"), inspect.Parameter.empty),
        pscompy.Socket.accept: {"timeout": None},
    }
    for function, expected in signatures.items():
        parameters = dict(inspect.signature(function).parameters)
        parameters.pop("self", None)
        assert {name: p.default for name, p in parameters.items()} == expected


def test_an_address_is_one_word_and_names_the_session(session: Make) -> None:
    socket = session("a name with spaces, ü and /").listen()
    assert socket.address.isprintable()
    assert len(socket.address.split()) == 1
    assert socket.address.startswith("psp://")


@pytest.mark.parametrize("address", ["", "nowhere", "psp://", "host:0", "host:70000", "a b:1"])
def test_connect_raises_for_what_is_no_address(session: Make, address: str) -> None:
    with pytest.raises(ConnectError, match="no address"):
        session().connect(address)


def test_connecting_to_an_own_socket_works(session: Make) -> None:
    own = session()
    socket = own.listen()
    out = own.connect(socket.address)
    sent = out.isend(b"to myself")
    assert bytes(socket.accept(60).recv(timeout=60)) == b"to myself"
    sent.wait(60)


def test_accept_gives_connections_in_the_order_in_which_they_came_up(session: Make) -> None:
    server = session()
    socket = server.listen()
    clients = [session(f"client {number}") for number in range(5)]
    for client in clients:
        client.connect(socket.address).open(60)
    assert [socket.accept(60).peer.rpartition(" (")[0] for _ in clients] == [
        client.name for client in clients
    ]


def test_a_connection_comes_up_without_accept(session: Make) -> None:
    socket = session().listen()
    connection = session().connect(socket.address)
    connection.send(b"eager", timeout=60)
    assert connection.state is ConnectionState.UP


def test_accept_times_out_and_loses_nothing(session: Make) -> None:
    socket = session().listen()
    with pytest.raises(Timeout):
        socket.accept(0.05)
    client = session("late")
    client.connect(socket.address).open(60)
    assert socket.accept(60).peer.startswith("late")


def test_a_cancelled_accept_leaves_the_connection_for_the_next(session: Make) -> None:
    socket = session().listen()
    first, second = socket.iaccept(), socket.iaccept()
    assert first.cancel()
    session("client").connect(socket.address).open(60)
    assert second.wait(60).peer.startswith("client")


def test_iteration_ends_when_the_socket_is_closed(session: Make) -> None:
    socket = session().listen()
    seen: list[str] = []
    accepting = threading.Thread(target=lambda: seen.extend(c.peer for c in socket))
    accepting.start()
    session("client").connect(socket.address).open(60)
    expect_soon(lambda: seen)
    socket.close()
    accepting.join(60)
    assert not accepting.is_alive()
    assert len(seen) == 1
    with pytest.raises(Closed):
        socket.accept()


def test_a_closed_socket_refuses(session: Make) -> None:
    socket = session().listen("127.0.0.1")
    socket.close()
    socket.close()
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1.*refused"):
        session(RETRY=0).connect(socket.address).open(60)


def test_listening_twice_at_one_port_says_so(session: Make) -> None:
    socket = session().listen("127.0.0.1")
    port = int(socket.address.rpartition(":")[2].partition("/")[0])
    with pytest.raises(ConnectError, match=f"{port}.*in use"):
        session().listen("127.0.0.1", port)


def test_several_places_of_an_address_are_tried(session: Make) -> None:
    socket = session("server").listen("127.0.0.1")
    place = socket.address.removeprefix("psp://").partition("/")[0]
    connection = session().connect(f"psp://127.0.0.1:1,localhost:1,{place}/server")
    connection.open(60)
    assert connection.peer.startswith("server")


def test_an_address_that_belongs_to_somebody_else_now_is_noticed(session: Make) -> None:
    socket = session("server").listen("127.0.0.1")
    stale = socket.address.replace("/server", "/former")
    with pytest.raises(ConnectError, match="is gone: its address is server"):
        session().connect(stale).open(60)
    socket.close()


def test_ipv6(session: Make) -> None:
    try:
        socket = session().listen("::1")
    except ConnectError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert socket.address.startswith("psp://[::1]:")
    session().connect(socket.address).open(60)
