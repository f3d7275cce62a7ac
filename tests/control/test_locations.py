"""An address with several locations, only one of which leads to the peer."""

from __future__ import annotations

import socket as sockets
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from pscompy import AuthError, ConnectError, Session
from pscompy.control.addresses import Address, Location
from tests.names import A_KEY, ANOTHER_KEY
from tests.waiting import expect_soon

Make = Callable[..., Session]


@pytest.fixture
def locations(session: Make) -> Iterator[Callable[[str], Location]]:
    """Returns a function that makes a place: without a process, with a silent one, with one that
    hangs up, or with another session."""
    opened: list[sockets.socket] = []

    def make(what: str) -> Location:
        if what in ("stranger", "other key"):
            other = session("stranger", KEY=A_KEY if what == "stranger" else ANOTHER_KEY)
            return Address.parse(other.listen("127.0.0.1").address).locations[0]
        server = sockets.create_server(("127.0.0.1", 0))
        opened.append(server)
        if what == "curt":
            threading.Thread(target=hang_up, args=(server,), daemon=True).start()
        place = Location("127.0.0.1", server.getsockname()[1])
        if what == "nobody":
            server.close()
        return place

    yield make
    for server in opened:
        with suppress(OSError):
            server.shutdown(sockets.SHUT_RDWR)
        server.close()


def hang_up(server: sockets.socket) -> None:
    """Close every accepted connection at once."""
    with suppress(OSError):
        while True:
            server.accept()[0].close()


KINDS = ["nobody", "mute", "curt", "stranger", "other key"]


@pytest.mark.parametrize("what", KINDS)
def test_the_peer_is_found_behind_another_place(
    session: Make, locations: Callable[[str], Location], what: str
) -> None:
    peer = session("peer", KEY=A_KEY)
    listening = peer.listen("127.0.0.1")
    right = Address.parse(listening.address)
    address = Address((locations(what), *right.locations), right.name)
    connection = session("caller", KEY=A_KEY, RETRY=0).connect(str(address))
    connection.send(b"hello", timeout=60)
    assert bytes(listening.accept(60).recv(timeout=60)) == b"hello"


def test_all_at_once(session: Make, locations: Callable[[str], Location]) -> None:
    peer = session("peer", KEY=A_KEY)
    listening = peer.listen("127.0.0.1")
    right = Address.parse(listening.address)
    wrong = [locations(what) for what in KINDS]
    address = Address((*wrong, *right.locations), right.name)
    connection = session("caller", KEY=A_KEY, RETRY=0).connect(str(address))
    connection.send(b"hello", timeout=60)
    assert bytes(listening.accept(60).recv(timeout=60)) == b"hello"


def test_where_it_is_nowhere_the_error_says_why(
    session: Make, locations: Callable[[str], Location]
) -> None:
    caller = session("caller", RETRY=1)
    nobody = Address((locations("nobody"), locations("nobody")), "peer")
    with pytest.raises(ConnectError) as caught:
        caller.connect(str(nobody)).open(60)
    for place in nobody.locations:
        assert f"{place}: Connection refused" in str(caught.value)
    closed = Address((locations("other key"), locations("nobody")), "peer")
    with pytest.raises(AuthError):
        caller.connect(str(closed)).open(60)


def test_a_link_that_is_not_heard_first_is_let_go(session: Make) -> None:
    """Both locations lead to the peer, which answers only after both are connected; the second
    precon is closed."""
    peer = session("peer")
    listening = peer.listen()
    port = Address.parse(listening.address).locations[0].port
    twice = Address((Location("127.0.0.1", port), Location("127.0.0.2", port)), "peer")
    busy, free = threading.Event(), threading.Event()
    peer._control._thread.call(lambda: (busy.set(), free.wait(60)))
    assert busy.wait(60)
    caller = session("caller", PRECON_TCP_RECONNECT_TIMEOUT=50)
    connection = caller.connect(str(twice))
    sent = connection.isend(b"hello")
    record = connection._record
    expect_soon(lambda: record.attempt is not None and len(record.attempt.rivals) == 2)
    free.set()
    sent.wait(60)
    assert bytes(listening.accept(60).recv(timeout=60)) == b"hello"
    expect_soon(lambda: len(caller._control._on_demand._precons) == 1)


@pytest.mark.parametrize("text", ["psp://[fe80::2%br-lan]:4477/x", "psp://[fe80::2%eth0.7]:1/x"])
def test_the_interface_of_an_address_of_one_link(text: str) -> None:
    assert str(Address.parse(text)) == text


class Broken:
    """A relay with a defect in one of its methods."""

    def __init__(self, defect: str) -> None:
        self._defect = defect

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name == self._defect:
            raise RuntimeError("a mistake")
        return lambda *_: True


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("gateway!7.1234.1", "PSP_GW_SERVER names no gateway"),
        ("tcp!here", "tcp has no relay"),
        ("nobody!here", "no transport nobody"),
        ("127.0.0.1:9,nobody!here", "127.0.0.1:9: Connection refused; nobody!here: no transport"),
        ("nobody!here,dial!there", "dial!there: the relay failed: RuntimeError('a mistake')"),
        ("127.0.0.1:9,leads!there", "leads!there: the relay failed: RuntimeError('a mistake')"),
    ],
)
def test_a_detour_that_is_not_taken(
    session: Make, caplog: pytest.LogCaptureFixture, address: str, reason: str
) -> None:
    caller = session("caller", RETRY=int(address[0] != "1"), GW_SERVER="")
    for defect in ("leads", "dial"):
        caller._control.worker.transports.relays[defect] = Broken(defect)
    with pytest.raises(ConnectError) as caught:
        caller.connect(address).open(60)
    assert reason in str(caught.value)
    caplog.clear()  # conftest.py lets no test log an exception
