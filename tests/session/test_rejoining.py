"""Rails of tcp that a connection has lost, and joins again."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from cut import lane_bytes, pause_before_joining, shut_rail
from puppets import (
    BOUND,
    LONG,
    ONLY,
    Connect,
    Link,
    Start,
    at_stage,
    check_echo,
    die_at,
    echo,
    exchange,
    stats,
)

import pscompy
from pscompy.control.addresses import Address, Location
from pscompy.control.handshake.states import PreconState
from pscompy.testing.remote_side import payload
from tests.waiting import expect_soon

RAILS = "127.0.0.1,127.0.0.2,127.0.0.3"
SOON = 0.05  # seconds until a rail is joined again


def joined(link: Link, times: int) -> bool:
    """Both sides notice it in calls only, so let them make some."""
    exchange(link, 1)
    both = (link.c.stats, link.peer(stats))
    return all(each["rails_joined"] == times for each in both)


@pytest.fixture
def link(connect: Connect) -> Link:
    """The far process is the one that offers rails again."""
    made = connect("tcp", TCP_RAILS=RAILS, DEBUG=2)
    made.peer(pause_before_joining, SOON)
    return made


@pytest.mark.parametrize("rail", [0, 1])
def test_a_lost_rail_is_joined_again_and_carries_messages(
    link: Link, caplog: pytest.LogCaptureFixture, rail: int
) -> None:
    for times in (1, 2, 3):
        link.peer(shut_rail, f"127.0.0.{rail + 1}")
        exchange(link, 1)
        expect_soon(lambda times=times: joined(link, times))
        expect_soon(lambda: not link.c.explain().as_dict()["lost"])
        carried = lane_bytes(link.c)[rail]
        # A rail that seems to be slow is left out for 512 MiB.
        while lane_bytes(link.c)[rail] == carried:
            exchange(link, 1)
    assert link.c.stats["rails_lost"] == 3
    assert f"rail {rail} of " in caplog.text
    assert "is joined again" in caplog.text


def test_several_rails_are_joined_again(link: Link) -> None:
    link.peer(shut_rail, "127.0.0.2")
    link.peer(shut_rail, "127.0.0.3")
    exchange(link, 1)
    expect_soon(lambda: joined(link, 2))
    exchange(link, 2)


def test_all_rails_are_lost_one_after_the_other(link: Link) -> None:
    """Each of them carries the short messages for a while."""
    for times, rail in enumerate((1, 2, 3, 1), 1):
        link.peer(shut_rail, f"127.0.0.{rail}")
        exchange(link, 1)
        expect_soon(lambda times=times: joined(link, times))
        check_echo(link)


def test_a_place_that_never_answers_does_not_keep_the_rails_apart(
    start: Start, open_session: Callable[..., pscompy.Session]
) -> None:
    """The link that guards the connection is shut with the first rail. When it is dialed again the
    peer does not listen, and another process accepts, but says nothing."""
    settings = {**ONLY["tcp"], "TCP_RAILS": RAILS, "GUARD_TIMEOUT": 1}
    session, peer = open_session(**settings), start(settings)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(BOUND)
        listening = session.listen("127.0.0.1")
        address = Address.parse(listening.address)
        places = (*address.locations, Location("127.0.0.1", mute.getsockname()[1]))
        peer.connect(str(Address(places, address.name)))
        link = Link(session, listening, listening.accept(timeout=BOUND), peer)
        assert link.c.recv(timeout=BOUND) == b"hello"
        listening.close()
        link.peer(shut_rail, "127.0.0.1")
        with mute.accept()[0], session.listen("127.0.0.1", address.locations[0].port):
            expect_soon(lambda: joined(link, 1))


def exchange_and_shut(here, rails, sizes):
    for number, size in enumerate(sizes):
        request = here.c.irecv()
        shut_rail(here, rails[number % len(rails)])
        assert request.wait(BOUND) == payload(size, number)
        here.c.send(payload(size, number))


@pytest.mark.parametrize("rails", [("127.0.0.2", "127.0.0.3"), ("127.0.0.1", "127.0.0.2")])
def test_messages_are_whole_while_rails_come_and_go(link: Link, rails: tuple[str, str]) -> None:
    """A rail is shut amid each message, and perhaps while it is being joined again."""
    sizes = [(1 + number % 5) << 20 for number in range(60)]
    link.peer.begin(exchange_and_shut, rails, sizes)
    for number, size in enumerate(sizes):
        link.c.send(payload(size, number), timeout=BOUND)
        assert link.c.recv(timeout=BOUND) == payload(size, number)
    link.peer.result()
    expect_soon(lambda: whole_again(link))
    check_echo(link)


def whole_again(link: Link) -> bool:
    """True once all rails are back. If the guard was shut with one of them, it comes back first."""
    exchange(link, 1)
    return link.c.stats["rails_joined"] > 0 and not link.c.explain().as_dict()["lost"]


def close_at(here, stage):
    at_stage(stage, here.c.close)


@pytest.mark.parametrize("stage", [PreconState.ANSWER_AGAIN.name, PreconState.TRIAL_AGAIN.name])
@pytest.mark.parametrize(("end", "error"), [(die_at, pscompy.PeerLost), (close_at, pscompy.Closed)])
def test_the_connection_ends_while_a_rail_is_joined(
    link: Link, end: Callable[..., None], error: type[Exception], stage: str
) -> None:
    link.peer(end, stage)
    link.peer(shut_rail, "127.0.0.2")
    link.peer.begin(echo, 1)
    with pytest.raises(error):
        link.c.send(payload(LONG, 1), timeout=BOUND)
        while True:
            link.c.recv(timeout=BOUND)
    expect_soon(lambda: link.session._core.lanes == {})


def test_a_proposal_of_a_rail_that_is_not_lost_is_refused(link: Link) -> None:
    link.peer(propose_a_rail)
    exchange(link, 1)
    assert link.c.stats["rails_joined"] == 0
    link.peer(shut_rail, "127.0.0.2")
    exchange(link, 1)
    expect_soon(lambda: joined(link, 1))


def propose_a_rail(here):
    """Proposal the second rail, as if it were lost."""
    (record,) = here.session._control.records()
    rejoining = record.precon.rejoining
    rejoining._begin = lambda rail: True
    here.session._control._thread.run(lambda: rejoining.lose([1]))
    expect_soon(lambda: rejoining._failures == 1)
    del rejoining._begin
    rejoining._lost = []
