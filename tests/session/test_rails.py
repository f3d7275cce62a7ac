"""Connections over several rails of tcp, which are loopback addresses here."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
import time
from pathlib import Path

import pytest
from cut import is_stream, lane_bytes, pause_before_joining, shut_rail
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from puppets import BOUND, LONG, ONLY, Connect, Link, Start, attach, check_echo, echo, exchanged

import pscompy
from pscompy.config.config import ConfigWarning
from pscompy.testing import faults
from pscompy.testing.base import Joined
from pscompy.testing.process import Far
from pscompy.testing.remote_side import payload

TWO = {**ONLY["tcp"], "TCP_RAILS": "127.0.0.1,127.0.0.2"}
ADDRESSES = "127.0.0.1,127.0.0.2,127.0.0.3"
# the ways in which pieces travel over three rails: as fragments, gets and puts
PORTALS = {**ONLY["portals"], "PORTALS_INTERFACE": ADDRESSES}
FABRICS = {
    "tcp": {**ONLY["tcp"], "TCP_RAILS": ADDRESSES},
    "get": PORTALS,
    "put": {**PORTALS, "RNDV_SCHEME": "put"},
}
MANY = 60  # short messages: more than one read takes, less than a socket holds


def ends_of_streams() -> set[tuple[str, str]]:
    """The addresses of the two ends of each TCP stream on this host."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return {
        (_address(here), _address(there)) for _, here, there, state, *_ in fields if state == "01"
    }


def _address(text: str) -> str:
    return socket.inet_ntoa(struct.pack("<I", int(text.partition(":")[0], 16)))


def test_rail_i_joins_rail_i_and_a_long_message_goes_over_all(connect: Connect) -> None:
    link = connect("tcp", TCP_RAILS="127.0.0.1,127.0.0.2,127.0.0.3")
    assert link.c.explain().lanes == 3
    assert {(f"127.0.0.{i}",) * 2 for i in (1, 2, 3)} <= ends_of_streams()
    check_long(link)


def check_long(link: Link) -> None:
    """A long message and its answer, of whose bytes each rail carries some."""
    link.peer.begin(echo, 1)
    data = bytes(range(256)) * (LONG // 256)
    link.c.send(data, timeout=BOUND)
    assert link.c.recv(timeout=BOUND) == data
    link.peer.result()
    carried = lane_bytes(link.c)
    assert sum(carried) == LONG
    assert min(carried) > 0, carried


def test_rails_of_portals(connect: Connect) -> None:
    """No interface matches messages, because any of the rails may fail."""
    link = connect("portals", PORTALS_INTERFACE="127.0.0.1,127.0.0.2,127.0.0.3")
    assert link.c.explain().lanes == 3
    assert link.c.explain().matching == "messages may move from one rail to another"
    check_echo(link)
    assert lane_bytes(link.c) == [0, 0, 0]
    check_long(link)


def test_an_interface_of_portals_that_is_missing_is_left_out(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    config = {**ONLY["portals"], "PORTALS_INTERFACE": "127.0.0.1,203.0.113.7,127.0.0.3"}
    with pscompy.Session(config=config) as session:
        link = attach(session, session.listen("127.0.0.1"), start(config))
        assert link.c.explain().lanes == 2
        check_echo(link)
    assert "path 1 cannot be used" in caplog.text


@pytest.mark.parametrize("text", ["-1", "4294967296"])
def test_an_interface_of_portals_has_a_number_of_32_bits(text: str) -> None:
    wrong = f"PSP_PORTALS_INTERFACE={text} is neither a number nor an IPv4 address"
    with pytest.warns(ConfigWarning, match=wrong):
        pscompy.Session(config={"PORTALS": 1, "PORTALS_INTERFACE": text}).close()


def test_short_messages_go_over_the_first_rail(connect: Connect) -> None:
    link = connect("tcp", TCP_RAILS="127.0.0.1,127.0.0.2")
    check_echo(link)
    assert lane_bytes(link.c) == [0, 0]


def test_without_the_variable_there_is_one_lane(connect: Connect) -> None:
    link = connect("tcp")
    assert link.c.explain().lanes == 1
    assert "tcp: chosen\n" in str(link.c.explain())
    assert lane_bytes(link.c) == []


def test_a_rail_that_one_side_lacks_is_left_out(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The place in the list counts, whether the other entries are usable or not."""
    session = pscompy.Session(
        config={**ONLY["tcp"], "TCP_RAILS": "127.0.0.1,203.0.113.0/24,127.0.0.2"}
    )
    with session:
        there = {**ONLY["tcp"], "TCP_RAILS": "127.0.0.1,127.0.0.3,127.0.0.4"}
        link = attach(session, session.listen("127.0.0.1"), start(there))
        assert link.c.explain().lanes == 2
        assert ("127.0.0.2", "127.0.0.4") in ends_of_streams()
        assert "tcp" not in link.c.explain().reasons
        why = link.peer(lambda here: str(here.c.explain()))
        assert "tcp: chosen without rail 1, which is not on both sides" in why
        check_echo(link)
    assert "no interface of this host matches rail 1" in caplog.text


def test_without_a_common_rail_they_do_not_connect(start: Start) -> None:
    with pscompy.Session(config={**TWO, "TCP_RAILS": "203.0.113.0/24,127.0.0.2"}) as session:
        peer = start({**TWO, "TCP_RAILS": "127.0.0.1"})
        address = session.listen("127.0.0.1").address
        with pytest.raises(pscompy.ConnectError, match="has other rails"):
            peer.connect(address)


def test_a_list_without_any_rail_names_the_variable() -> None:
    config = {"TCP_RAILS": "203.0.113.0/24"}
    said = "PSP_TCP_RAILS=203.0.113.0/24: no interface of this host matches it"
    with pytest.warns(match=said), pscompy.Session(config=config) as session:
        assert session.transports["tcp"] == said


def send_and_die(here):
    """Send more than one read of the receiver takes, and die when all of it has arrived."""
    for i in range(MANY):
        here.c.send(bytes([i % 256]) * 1000)
    streams = [fd for fd in range(1024) if is_stream(fd)]
    while any(struct.unpack("i", fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)))[0] for fd in streams):
        time.sleep(0.01)
    os._exit(0)


def test_messages_of_a_dead_peer_arrive_before_its_end(connect: Connect) -> None:
    """The other rails say first that the peer has ended."""
    link = connect("tcp", TCP_RAILS="127.0.0.1,127.0.0.2,127.0.0.3")
    link.peer.begin(send_and_die)
    link.peer.wait()
    for i in range(MANY):
        assert link.c.recv(timeout=BOUND) == bytes([i % 256]) * 1000
    with pytest.raises(pscompy.PeerLost):
        link.c.recv(timeout=BOUND)


@pytest.mark.parametrize("rail", [0, 1])
def test_a_connection_goes_on_without_a_rail(
    connect: Connect, caplog: pytest.LogCaptureFixture, rail: int
) -> None:
    link = connect("tcp", TCP_RAILS="127.0.0.1,127.0.0.2,127.0.0.3")
    link.peer(pause_before_joining, BOUND)
    link.peer(shut_rail, f"127.0.0.{rail + 1}")
    link.peer.begin(echo, 3)
    data = bytes(range(256)) * (LONG // 256)
    for _ in range(3):
        link.c.send(data, timeout=BOUND)
        assert link.c.recv(timeout=BOUND) == data
    link.peer.result()
    assert link.c.stats["rails_lost"] == 1
    text = str(link.c.explain())
    assert "over tcp, 2 rails" in text
    assert f"rail {rail} of tcp is lost: " in text
    assert link.c.explain().as_dict()["lost"].keys() == {rail}
    assert f"rail {rail} of tcp is lost" in caplog.text


def test_a_connection_ends_with_its_last_rail(connect: Connect) -> None:
    link = connect("tcp", TCP_RAILS="127.0.0.1,127.0.0.2")
    link.peer(shut_rail, "127.0.0.2")
    link.peer(shut_rail, "127.0.0.1")
    with pytest.raises(pscompy.PeerLost):
        link.c.recv(timeout=BOUND)


def shut_amid(here, size, seconds):
    """Receive a message, and shut the second rail after so many seconds."""
    request = here.c.irecv()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        request.test()
    shut_rail(here, "127.0.0.2")
    got = request.wait(BOUND)
    here.c.send(bytes([got == payload(size, 1)]))


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 10, 20])
def test_a_rail_is_lost_amid_a_message(connect: Connect, milliseconds: int) -> None:
    size = 64 << 20
    link = connect("tcp", TCP_RAILS="127.0.0.1,127.0.0.2")
    link.peer.begin(shut_amid, size, milliseconds / 1000)
    link.c.send(payload(size, 1), timeout=BOUND)
    assert link.c.recv(timeout=BOUND) == b"\1"
    link.peer.result()
    check_echo(link)


sizes = st.lists(st.one_of(st.integers(1, 2000), st.integers(1, 1 << 20)), min_size=1, max_size=20)
deaths = st.tuples(st.integers(1, 3), st.integers(1, 40))  # path, number of the operation


def faulty(folder: Path, far: Far, fabric: str, *sides: dict[str, int]) -> Joined:
    """Two sessions whose transport has these faults."""
    name = "tcp" if fabric == "tcp" else "portals"
    plugins = faults.make_folder(folder, name, "")
    here, there = (
        {**FABRICS[fabric], "PLUGINDIR": plugins}
        | {f"{name.upper()}_FAULT_{fault}": value for fault, value in side.items()}
        for side in sides
    )
    return Joined(name, far, here, there)


@pytest.mark.parametrize("fabric", FABRICS)
@settings(max_examples=8, deadline=None, suppress_health_check=[*HealthCheck])
@given(sizes, st.integers(0, 30), st.integers(0, 30), st.integers(0, 2))
def test_messages_are_whole_whatever_the_order_of_the_rails(
    tmp_path: Path, far: Far, fabric: str, sizes: list[int], here: int, there: int, busy: int
) -> None:
    """Both sides exchange messages of these sizes at once, while each rail stands still for a
    random number of passes again and again, and refuses operations."""
    knobs = [{"SHUFFLE": passes, "BUSY": busy} for passes in (here, there)]
    with faulty(tmp_path, far, fabric, *knobs) as link:
        assert link.c.explain().lanes == 3
        exchanged(link, far, sizes)


@pytest.mark.parametrize("fabric", FABRICS)
@settings(max_examples=15, deadline=None, suppress_health_check=[*HealthCheck])
@given(sizes, deaths, deaths, st.integers(0, 10), st.integers(0, 2))
def test_messages_are_whole_whenever_rails_die(
    tmp_path: Path,
    far: Far,
    fabric: str,
    sizes: list[int],
    here: tuple[int, int],
    there: tuple[int, int],
    shuffle: int,
    busy: int,
) -> None:
    """Both sides exchange messages of these sizes at once; on each, one rail breaks with a certain
    operation."""
    knobs = [
        {"PATH": path, "FAIL_AT": operation, "SHUFFLE": shuffle, "BUSY": busy}
        for path, operation in (here, there)
    ]
    with faulty(tmp_path, far, fabric, *knobs) as link:
        exchanged(link, far, sizes)
        exchanged(link, far, sizes)
