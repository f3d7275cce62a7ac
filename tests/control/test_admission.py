"""Admission to a listening socket: peers are accepted beside strangers that never prove the key."""

from __future__ import annotations

import select
import socket as sockets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

import pscompy
from pscompy import Session
from pscompy.control import admission
from pscompy.control.addresses import Address, listening_socket
from pscompy.control.admission import source_of
from pscompy.control.handshake import limits
from pscompy.control.handshake.greeting import Hello
from tests.waiting import expect_soon

Make = Callable[..., Session]
SLOTS = 32
GREETING = Hello(b"n" * limits.NONCE_SIZE).pack()


@pytest.fixture
def listening(session: Make, monkeypatch: pytest.MonkeyPatch) -> pscompy.Socket:
    """A listening socket with few slots and no time limit for strangers."""
    monkeypatch.setattr(admission, "SLOTS_MAX", SLOTS)
    monkeypatch.setattr(admission, "UNPROVED_SECONDS", 10_000.0)
    return session("server").listen("127.0.0.1")


@pytest.fixture
def strangers() -> Iterator[list[sockets.socket]]:
    with ExitStack() as open_ones:
        yield (made := [])
        for stranger in made:
            open_ones.enter_context(stranger)


def dial(listening: pscompy.Socket, source: str = "127.0.0.1") -> sockets.socket:
    location = Address.parse(listening.address).locations[0]
    return sockets.create_connection((location.host, location.port), 60, (source, 0))


def dropped(stranger: sockets.socket) -> bool:
    """True if the other end has closed the connection; reads no data."""
    poll = select.poll()
    poll.register(stranger, select.POLLRDHUP)
    return bool(poll.poll(0))


def check_served(session: Make, listening: pscompy.Socket) -> None:
    client = session(RETRY=0)  # this client is accepted at once
    client.connect(listening.address).send(b"x", timeout=60)
    assert bytes(listening.accept(60).recv(timeout=60)) == b"x"


@pytest.mark.parametrize("words", [b"", GREETING[:1], GREETING], ids=["idle", "slow", "greet"])
def test_a_peer_comes_in_beside_strangers(
    session: Make, listening: pscompy.Socket, strangers: list[sockets.socket], words: bytes
) -> None:
    """Peers are accepted, however much the strangers have sent and however many of them wait."""
    for _ in range(3 * SLOTS):
        strangers.append(dial(listening))
        strangers[-1].sendall(words)
    check_served(session, listening)
    expect_soon(lambda: sum(not dropped(one) for one in strangers) <= SLOTS)
    check_served(session, listening)
    for one in strangers:
        with suppress(OSError):
            one.sendall(b"y")
    check_served(session, listening)


def test_a_source_that_calls_without_end_pushes_out_its_own(
    session: Make, listening: pscompy.Socket, strangers: list[sockets.socket]
) -> None:
    lonely = dial(listening, "127.0.0.2")
    strangers.append(lonely)
    for _ in range(3 * SLOTS):
        strangers.append(dial(listening))
    expect_soon(lambda: dropped(strangers[SLOTS]))
    check_served(session, listening)
    assert not dropped(lonely)


def test_one_byte_at_a_time_gains_no_time(session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "UNPROVED_SECONDS", 0.5)
    listening = session("server").listen("127.0.0.1")
    with dial(listening) as slow:

        def says_one_more() -> bool:
            with suppress(OSError):
                slow.sendall(GREETING[:1] if not said else GREETING[len(said) :][:1])
                said.append(None)
            return dropped(slow)

        said: list[None] = []
        expect_soon(says_one_more)
    check_served(session, listening)


def test_a_precon_that_comes_in_has_the_options_of_those_that_go_out(session: Make) -> None:
    """An accepted socket inherits its options from the listening socket."""
    settings = {"PRECON_TCP_NODELAY": 1, "PRECON_TCP_SO_RCVBUF": 50_000}
    server, client = session("server", **settings), session("client", **settings)
    client.connect(server.listen("127.0.0.1").address).open(60)
    ends = [next(iter(own._control._on_demand._precons)).precon._sock for own in (server, client)]
    assert None not in ends
    names = ("SO_KEEPALIVE", "SO_SNDBUF", "SO_RCVBUF")
    options = [(sockets.SOL_SOCKET, getattr(sockets, name)) for name in names]
    names = ("NODELAY", "KEEPIDLE", "KEEPINTVL", "KEEPCNT", "USER_TIMEOUT")
    options += [(sockets.IPPROTO_TCP, getattr(sockets, f"TCP_{name}")) for name in names]
    taken, dialled = ([end.getsockopt(*option) for option in options] for end in ends if end)
    assert taken == dialled
    assert 0 not in taken


def test_a_listening_socket_is_prepared_before_a_peer_can_connect() -> None:
    """A connection that comes in before the options are set would not inherit them."""
    listening: list[int] = []

    def prepare(sock: sockets.socket) -> None:
        listening.append(sock.getsockopt(sockets.SOL_SOCKET, sockets.SO_ACCEPTCONN))

    for host in (None, "127.0.0.1"):
        listening_socket(host, 0, prepare).close()
    assert listening == [0, 0]


def test_callers_are_counted_by_source() -> None:
    assert source_of(("192.0.2.1", 5)) == source_of(("::ffff:192.0.2.1", 7, 0, 0))
    assert source_of(("192.0.2.1", 5)) != source_of(("192.0.2.2", 5))
    assert source_of(("2001:db8::1", 5, 0, 0)) == source_of(("2001:db8::ff:2", 5, 0, 0))
    assert source_of(("2001:db8::1", 5, 0, 0)) != source_of(("2001:db8:0:1::1", 5, 0, 0))
    assert source_of(("fe80::1%eth0", 5, 0, 3)) == source_of(("fe80::2", 5, 0, 0))
