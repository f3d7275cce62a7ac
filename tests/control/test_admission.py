"""Strangers at the door of a listening socket, and what a control thread survives."""

from __future__ import annotations

import logging
import os
import select
import socket as sockets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

import pscompy
from pscompy import Session
from pscompy.control import admission
from pscompy.control.addresses import Address
from pscompy.control.admission import source_of
from pscompy.control.event_loop import READ, ControlThread
from pscompy.control.handshake import frames
from pscompy.control.handshake.frames import Hello
from tests.waiting import expect_soon

Make = Callable[..., Session]
PLACES = 32
GREETING = Hello(b"n" * frames.NONCE_SIZE).pack()


@pytest.fixture
def listening(session: Make, monkeypatch: pytest.MonkeyPatch) -> pscompy.Socket:
    """With few places, whose time is never over."""
    monkeypatch.setattr(admission, "PLACES_MAX", PLACES)
    monkeypatch.setattr(admission, "UNPROVED_SECONDS", 10_000.0)
    return session("server").listen("127.0.0.1")


@pytest.fixture
def strangers() -> Iterator[list[sockets.socket]]:
    with ExitStack() as open_ones:
        yield (made := [])
        for stranger in made:
            open_ones.enter_context(stranger)


def knock(listening: pscompy.Socket, source: str = "127.0.0.1") -> sockets.socket:
    place = Address.parse(listening.address).places[0]
    return sockets.create_connection((place.host, place.port), 60, (source, 0))


def dropped(stranger: sockets.socket) -> bool:
    """Whether the other end has hung up. What it has said is not read."""
    poll = select.poll()
    poll.register(stranger, select.POLLRDHUP)
    return bool(poll.poll(0))


def check_served(session: Make, listening: pscompy.Socket) -> None:
    client = session(RETRY=0)  # it is let in at once
    client.connect(listening.address).send(b"x", timeout=60)
    assert bytes(listening.accept(60).recv(timeout=60)) == b"x"


@pytest.mark.parametrize("words", [b"", GREETING[:1], GREETING], ids=["idle", "slow", "greet"])
def test_a_peer_comes_in_beside_strangers(
    session: Make, listening: pscompy.Socket, strangers: list[sockets.socket], words: bytes
) -> None:
    """Whatever they have said so far, and however many wait behind those that are in."""
    for _ in range(3 * PLACES):
        strangers.append(knock(listening))
        strangers[-1].sendall(words)
    check_served(session, listening)
    expect_soon(lambda: sum(not dropped(one) for one in strangers) <= PLACES)
    check_served(session, listening)
    for one in strangers:
        with suppress(OSError):
            one.sendall(b"y")
    check_served(session, listening)


def test_a_source_that_calls_without_end_pushes_out_its_own(
    session: Make, listening: pscompy.Socket, strangers: list[sockets.socket]
) -> None:
    lonely = knock(listening, "127.0.0.2")
    strangers.append(lonely)
    for _ in range(3 * PLACES):
        strangers.append(knock(listening))
    expect_soon(lambda: dropped(strangers[PLACES]))
    check_served(session, listening)
    assert not dropped(lonely)


def test_one_byte_at_a_time_gains_no_time(session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "UNPROVED_SECONDS", 0.5)
    listening = session("server").listen("127.0.0.1")
    with knock(listening) as slow:

        def says_one_more() -> bool:
            with suppress(OSError):
                slow.sendall(GREETING[:1] if not said else GREETING[len(said) :][:1])
                said.append(None)
            return dropped(slow)

        said: list[None] = []
        expect_soon(says_one_more)
    check_served(session, listening)


def test_a_link_that_comes_in_has_the_options_of_those_that_go_out(session: Make) -> None:
    """It has them of the listening socket."""
    settings = {"PRECON_TCP_NODELAY": 1, "PRECON_TCP_SO_RCVBUF": 50_000}
    server, client = session("server", **settings), session("client", **settings)
    client.connect(server.listen("127.0.0.1").address).open(60)
    ends = [next(iter(own._control._on_demand._links)).link._sock for own in (server, client)]
    assert None not in ends
    names = ("SO_KEEPALIVE", "SO_SNDBUF", "SO_RCVBUF")
    options = [(sockets.SOL_SOCKET, getattr(sockets, name)) for name in names]
    names = ("NODELAY", "KEEPIDLE", "KEEPINTVL", "KEEPCNT", "USER_TIMEOUT")
    options += [(sockets.IPPROTO_TCP, getattr(sockets, f"TCP_{name}")) for name in names]
    taken, dialled = ([end.getsockopt(*option) for option in options] for end in ends if end)
    assert taken == dialled
    assert 0 not in taken


def test_a_crowd_is_counted_by_who_can_be_told_apart() -> None:
    assert source_of(("192.0.2.1", 5)) == source_of(("::ffff:192.0.2.1", 7, 0, 0))
    assert source_of(("192.0.2.1", 5)) != source_of(("192.0.2.2", 5))
    assert source_of(("2001:db8::1", 5, 0, 0)) == source_of(("2001:db8::ff:2", 5, 0, 0))
    assert source_of(("2001:db8::1", 5, 0, 0)) != source_of(("2001:db8:0:1::1", 5, 0, 0))
    assert source_of(("fe80::1%eth0", 5, 0, 3)) == source_of(("fe80::2", 5, 0, 0))


# ---- the thread ---------------------------------------------------------------------------------


@pytest.fixture
def thread() -> Iterator[ControlThread]:
    made = ControlThread("a test")
    made.start()
    yield made
    assert made.stop(60)


@pytest.fixture
def _failures_are_wanted(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Those that a test has brought about are no defect."""
    yield
    for when in ("setup", "call"):
        caplog.get_records(when).clear()


def works(thread: ControlThread) -> bool:
    done = threading.Event()
    thread.call(done.set)
    return done.wait(60)


@pytest.mark.usefixtures("_failures_are_wanted")
@pytest.mark.parametrize("kind", [OSError, ValueError, MemoryError, SystemExit, KeyboardInterrupt])
def test_nothing_that_a_call_back_raises_ends_the_thread(
    thread: ControlThread, kind: type[BaseException]
) -> None:
    def fails(*_: object) -> None:
        raise kind("on purpose")

    thread.call(fails)
    thread.call(thread.later, 0, fails)
    assert works(thread)
    reading, writing = os.pipe()
    thread.call(thread.register, reading, READ, fails)
    os.write(writing, b"x")
    assert works(thread)
    thread.call(thread.unregister, reading)
    assert works(thread)
    os.close(reading)
    os.close(writing)


@pytest.mark.usefixtures("_failures_are_wanted")
def test_a_pump_that_fails_keeps_nothing_from_being_looked_at(thread: ControlThread) -> None:
    failed = threading.Event()

    def fails() -> bool:
        failed.set()
        raise OSError("on purpose")

    thread.call(thread.set_pump, fails)
    assert failed.wait(60)
    assert works(thread)


@pytest.mark.usefixtures("_failures_are_wanted")
def test_an_event_that_stays_is_told_once(
    thread: ControlThread, caplog: pytest.LogCaptureFixture
) -> None:
    times = []

    def fails(*_: object) -> None:
        times.append(None)
        raise OSError("on purpose")

    reading, writing = os.pipe()
    os.write(writing, b"x")
    with caplog.at_level(logging.ERROR, "pscompy"):
        thread.call(thread.register, reading, READ, fails)
        expect_soon(lambda: len(times) > 10)
        thread.call(thread.unregister, reading)
        assert works(thread)
    assert len([record for record in caplog.records if record.exc_info]) == 1
    os.close(reading)
    os.close(writing)


def test_a_line_of_the_log_needs_no_descriptor() -> None:
    program = (
        "import logging, resource, pscompy\n"
        "session = pscompy.Session(config={'KEY': 'random:' + 'a1' * 32})\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "log = logging.getLogger('pscompy.test')\n"
        "try: raise ValueError('a cause')\n"
        "except ValueError: log.exception('%d things', 3)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    first, *_, last = done.stderr.splitlines()
    assert done.returncode == 0
    assert first.endswith("error: 3 things")
    assert last == "ValueError: a cause"
