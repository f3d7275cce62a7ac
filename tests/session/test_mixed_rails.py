"""Connections whose rails are of different transports: portals, whose interface is in software, and
tcp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cut import lane_bytes, pause_before_joining, shut_rail
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from puppets import LONG, Link, Start, attach, check_echo, exchange, exchanged, stats

import pscompy
from pscompy.testing import faults
from pscompy.testing.base import Joined
from pscompy.testing.process import Far
from tests.waiting import expect_soon

BOTH = {"SHM": 0, "PORTALS": 1, "PORTALS_PROVIDER": "software"}
MIXED = {**BOTH, "RAILS": "portals+tcp"}


def explained(here):
    return str(here.c.explain())


@pytest.fixture
def session() -> Iterator[pscompy.Session]:
    with pscompy.Session(config={**MIXED, "DEBUG": 2}) as made:
        yield made


def joined(session: pscompy.Session, start: Start, **there: object) -> Link:
    return attach(session, session.listen("127.0.0.1"), start({**MIXED, **there}))


def test_long_messages_go_over_both_transports(session: pscompy.Session, start: Start) -> None:
    link = joined(session, start)
    check_echo(link)
    assert lane_bytes(link.c) == [0, 0]
    exchange(link, 3)
    assert sum(lane_bytes(link.c)) == 3 * LONG
    assert min(lane_bytes(link.c)) > 0
    assert min(link.peer(stats)[f"lane{i}_bytes"] for i in range(2)) > 0
    for text in (str(link.c.explain()), link.peer(explained)):
        assert "over portals+tcp, 2 rails\n  portals: chosen\n" in text
        assert "  tcp: joins portals (PSP_RAILS)\n" in text
        assert "  lane 0: rail 0 of portals\n  lane 1: rail 0 of tcp\n" in text
    known = link.c.explain().as_dict()
    assert known["rails"] == [["portals", 0], ["tcp", 0]]
    assert known["matching_reason"] == "messages may move from one rail to another"


@pytest.mark.parametrize("scheme", ["get", "put"])
def test_only_some_rails_can_get_and_put(start: Start, scheme: str) -> None:
    """Then tcp carries none of these bytes."""
    config = {**MIXED, "RNDV_SCHEME": scheme}
    with pscompy.Session(config=config) as session:
        link = joined(session, start, RNDV_SCHEME=scheme)
        exchange(link, 2)
        both = (link.c.stats, link.peer(stats))
        assert [each[f"rndv_{scheme}"] for each in both] == [2, 2]
        assert [each["lane0_bytes"] for each in both] == [2 * LONG, 2 * LONG]
        assert [each["lane1_bytes"] for each in both] == [0, 0]


def test_several_rails_of_both(start: Start) -> None:
    """Four in all: each transport has one at least."""
    addresses = "127.0.0.1,127.0.0.2,127.0.0.3"
    config = {**MIXED, "RAILS": "tcp+portals", "TCP_RAILS": f"{addresses},127.0.0.4"}
    config["PORTALS_INTERFACE"] = "127.0.0.1,127.0.0.2"
    with pscompy.Session(config=config) as session:
        link = attach(session, session.listen("127.0.0.1"), start(config))
        rails = [["tcp", 0], ["tcp", 1], ["tcp", 2], ["portals", 0]]
        assert link.c.explain().as_dict()["rails"] == rails
        text = str(link.c.explain())
        assert "tcp: chosen without rail 3: a connection has 4 at most" in text
        assert "portals: joins tcp (PSP_RAILS) without rail 1: a connection" in text
        exchange(link, 3)
        assert min(lane_bytes(link.c)) > 0


@pytest.mark.parametrize(
    ("there", "here_says", "they_say"),
    [
        ({"RAILS": ""}, "portals+tcp is not offered (there)", None),
        (
            {"RAILS": "portals+ib+gateway"},
            "portals+tcp is not offered (there)",
            "PSP_RAILS: without ib: ",
        ),
        (
            {"RAILS": "portals+tcp", "TCP": 0},
            "portals+tcp is not offered (there)",
            "PSP_RAILS: without tcp: excluded by PSP_TCP=0 (here)",
        ),
        ({"RAILS": "tcp+portals"}, None, None),
    ],
)
def test_the_peer_offers_others(
    session: pscompy.Session,
    start: Start,
    there: dict[str, object],
    here_says: str | None,
    they_say: str | None,
) -> None:
    """The connection works over what both have, and both sides say what it goes without."""
    link = joined(session, start, **there)
    text = str(link.c.explain())
    if here_says is None:
        assert "over tcp+portals, 2 rails" in text
    else:
        assert f"PSP_RAILS: {here_says}" in text
        assert link.c.explain().lanes == 1
    told = link.peer(explained)
    assert (they_say or "") in told
    assert "PSP_PSP_RAILS" not in text + told
    exchange(link, 1)


@pytest.mark.parametrize(
    ("here", "why"),
    [
        ({"RAILS": ""}, "without portals: PSP_RAILS does not name it; without tcp: PSP_RAILS does"),
        ({"RAILS": "portals+ib"}, "without tcp: PSP_RAILS does not name it"),
        ({"TCP": 0}, "without tcp: excluded by PSP_TCP=0"),
        ({"RAILS": "tcp+portals", "PORTALS": 0}, "without portals: excluded by PSP_PORTALS=0"),
    ],
)
def test_the_peer_is_offered_what_is_not_here(
    start: Start, here: dict[str, object], why: str
) -> None:
    with pscompy.Session(config={**MIXED, **here}) as session:
        link = joined(session, start)
        assert link.c.explain().lanes == 1
        assert f"PSP_RAILS: {why}" in str(link.c.explain())
        assert f"PSP_RAILS: {why}" in link.peer(explained)
        exchange(link, 1)


@pytest.mark.parametrize(
    ("rails", "why"),
    [
        ("portals", "two to four names"),
        ("tcp+tcp", "two to four names"),
        ("portals+tcp+", "two to four names"),
        ("portals+pigeon", "PSP_RAILS=portals+pigeon: there is no transport pigeon, only "),
        ("ib+tcp", "PSP_RAILS=ib\\+tcp: ib, the first one, cannot be used: excluded by PSP_IB=0"),
        ("tcp+shm", "PSP_RAILS=tcp\\+shm: shm connects processes of one node only"),
        ("loop+tcp", "PSP_RAILS=loop\\+tcp: loop connects a session with itself only"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(rails: str, why: str) -> None:
    config = {**BOTH, "SHM": 1, "IB": 0, "RAILS": rails}
    with pytest.raises(pscompy.ConfigError, match=why.replace("s+p", "s\\+p")) as raised:
        pscompy.Session(config=config)
    assert raised.value.name == "PSP_RAILS"


def test_the_second_rail_is_lost_and_joined_again(
    session: pscompy.Session, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    link = joined(session, start, TCP_RAILS="127.0.0.2")
    link.peer(pause_before_joining, 5.0)  # explain() is asked within
    for times in (1, 2):
        link.peer(shut_rail, "127.0.0.2")
        exchange(link, 2)
        assert link.c.stats["rails_lost"] == times
        assert "over portals+tcp, 1 rail\n" in str(link.c.explain())
        assert "rail 0 of tcp is lost: " in str(link.c.explain())
        assert list(link.c.explain().as_dict()["lost"]) == [1]
        expect_soon(lambda times=times: back(link, times))
        carried = lane_bytes(link.c)[1]
        while lane_bytes(link.c)[1] == carried:
            exchange(link, 1)
        assert not link.c.explain().as_dict()["lost"]
    assert "rail 0 of tcp is lost" in caplog.text
    assert "rail 0 of tcp is joined again" in caplog.text


def back(link: Link, times: int) -> bool:
    """Both sides notice it in calls only, so let them make some."""
    exchange(link, 1)
    both = (link.c.stats, link.peer(stats))
    return all(each["rails_joined"] == times for each in both)


# ---- rails that die with a certain operation -----------------------------------------------------

sizes = st.lists(st.one_of(st.integers(1, 2000), st.integers(1, 1 << 20)), min_size=1, max_size=20)
operations = st.integers(1, 60)


@pytest.mark.parametrize("rails", ["portals+tcp", "tcp+portals"])
@settings(max_examples=15, deadline=None, suppress_health_check=[*HealthCheck])
@given(
    *(sizes, st.sampled_from(["PORTALS", "TCP"]), operations, operations),
    *(st.integers(0, 10), st.integers(0, 2)),
)
def test_messages_are_whole_whenever_rails_die(
    tmp_path: Path,
    far: Far,
    rails: str,
    sizes: list[int],
    dying: str,
    here: int,
    there: int,
    shuffle: int,
    busy: int,
) -> None:
    """Both sides exchange messages of these sizes at once; on each, the same rail breaks with a
    certain operation."""
    config = {**BOTH, "RAILS": rails}
    for name in ("portals", "tcp"):
        config["PLUGINDIR"] = faults.make_folder(tmp_path, name, "")
        config[f"{name.upper()}_FAULT_SHUFFLE"] = shuffle
        config[f"{name.upper()}_FAULT_BUSY"] = busy
    ends = ({**config, f"{dying}_FAULT_FAIL_AT": operation} for operation in (here, there))
    with Joined(rails.partition("+")[0], far, *ends) as link:
        assert link.c.explain().lanes == 2
        exchanged(link, far, sizes)
        exchanged(link, far, sizes)
