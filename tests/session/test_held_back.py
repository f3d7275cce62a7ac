"""Messages that are announced and have no receive, each of which costs a record: others pass very
many of them. Where PSP_RTS_MAX holds later ones back, everything that waits for these names it.
"""

from __future__ import annotations

import logging

import pytest
from puppets import BOUND, ONLY

import pscompy
from tests.waiting import expect_soon

SHORT = 0.05
MANY = 65_000
FEW = 8
THRESHOLD = 1000  # PSP_RENDEZVOUS
LONG = 4096
RECORD = 1024  # bytes; the record of an announced message takes less


def send_many(here, count, nbytes):
    data = bytes(nbytes)
    here.sends = [here.c.isend(data, tag=1) for _ in range(count)]
    here.sends.append(here.c.isend(b"wanted", tag=2))


def send_many_and_wait(here, count, nbytes):
    send_many(here, count, nbytes)
    pscompy.wait_all(here.sends, timeout=10 * BOUND)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("nbytes", [8, LONG])
@pytest.mark.parametrize("transport", ONLY)
def test_a_message_passes_very_many_others(connect, transport, nbytes):
    link = connect(transport, RENDEZVOUS=THRESHOLD)
    link.peer.begin(send_many_and_wait, MANY, nbytes)
    assert link.c.recv(tag=2, timeout=5 * BOUND) == b"wanted"
    kept = link.session.stats["announced_bytes"]
    assert kept < RECORD * MANY
    assert kept > 0 or nbytes < THRESHOLD
    buffer = bytearray(nbytes)
    for _ in range(MANY):
        link.c.recv(buffer, tag=1, timeout=BOUND)
    link.peer.result()
    assert link.session.stats["announced_bytes"] == 0


@pytest.fixture
def world(monkeypatch):
    """A World of one rank, whose messages to itself go over loop."""
    for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    worlds = []

    def begin(**config):
        worlds.append(pscompy.World(config={"RENDEZVOUS": THRESHOLD, **config}))
        return worlds[-1]

    yield begin
    for it in worlds:
        it.close()


def send_to_itself(world, count, nbytes):
    sends = [world.isend(bytes(nbytes), dest=0, tag=1) for _ in range(count)]
    return [*sends, world.isend(b"wanted", dest=0, tag=2)]


@pytest.mark.parametrize("nbytes", [8, LONG])
def test_a_message_of_a_rank_to_itself_passes_very_many_others(world, nbytes):
    world = world()
    sends = send_to_itself(world, MANY, nbytes)
    assert world.recv(tag=2, timeout=BOUND) == b"wanted"
    for _ in range(MANY):
        world.recv(tag=1, timeout=BOUND)
    pscompy.wait_all(sends, timeout=BOUND)


# ---- PSP_RTS_MAX ----


def text_of(call):
    with pytest.raises(pscompy.Timeout) as caught:
        call()
    return str(caught.value)


def timed_out_send(here, index):
    return text_of(lambda: here.sends[index].wait(SHORT))


def wait_for_all(here):
    pscompy.wait_all(here.sends, timeout=BOUND)


def receive_all(held):
    held.peer.begin(wait_for_all)
    for _ in range(2 * FEW):
        held.c.recv(tag=1, timeout=BOUND)


def dump(here):
    return here.session.dump()


@pytest.fixture
def held(connect, transport):
    """A link whose peer has sent more long messages than PSP_RTS_MAX lets it announce; none is
    received."""
    link = connect(transport, RENDEZVOUS=THRESHOLD, RTS_MAX=FEW)
    link.peer(send_many, 2 * FEW, LONG)

    def arrived():
        link.session.progress()
        return link.session.stats["unexpected"] >= FEW

    expect_soon(arrived)
    return link


def test_a_receive_that_waits_names_what_holds_its_message_back(held):
    text = text_of(lambda: held.c.recv(tag=2, timeout=SHORT))
    assert f"{FEW} messages from {held.c.peer} wait for a receive here" in text
    assert "later ones wait there for them (PSP_RTS_MAX)" in text
    request = held.c.irecv(tag=2)
    (line,) = (it for it in held.session.dump().splitlines() if "receive from" in it)
    assert "(PSP_RTS_MAX)" in line
    receive_all(held)
    assert request.wait(BOUND) == b"wanted"
    held.peer.result()
    assert "PSP_RTS_MAX" not in text_of(lambda: held.c.recv(tag=2, timeout=SHORT))


def test_a_send_that_waits_names_what_holds_it_back(held):
    for index in (0, FEW, -1):
        text = held.peer(timed_out_send, index)
        assert text.partition("; ")[2].startswith(f"{FEW} messages to {held.session.name} "), index
        assert "later ones wait here for them (PSP_RTS_MAX)" in text, index
    lines = [it for it in held.peer(dump).splitlines() if "send to" in it]
    assert len(lines) == 2 * FEW + 1
    assert all("(PSP_RTS_MAX)" in it for it in lines)
    assert sum("not sent yet" in it for it in lines) == FEW + 1
    receive_all(held)
    assert held.c.recv(tag=2, timeout=BOUND) == b"wanted"
    held.peer.result()


def test_a_receive_on_an_endpoint_names_it_once(world):
    endpoint = world(RTS_MAX=FEW).endpoints(2)[1]
    sends = send_to_itself(endpoint, 2 * FEW, LONG)
    found = []

    def named():
        found.append(text_of(lambda: endpoint.recv(tag=2, timeout=SHORT)))
        return "wait for a receive here" in found[-1]

    expect_soon(named)
    assert found[-1].count("wait for a receive here") == 1, found[-1]
    for _ in range(2 * FEW):
        endpoint.recv(tag=1, timeout=BOUND)
    assert endpoint.recv(tag=2, timeout=BOUND) == b"wanted"
    pscompy.wait_all(sends, timeout=BOUND)


def test_the_log_says_once_what_is_held_back(world, caplog):
    world = world(RTS_MAX=FEW)
    with caplog.at_level(logging.WARNING, "pscompy"):
        sends = send_to_itself(world, 2 * FEW, LONG)
        expect_soon(lambda: "PSP_RTS_MAX" in caplog.text)
        text = text_of(lambda: world.recv(tag=2, timeout=SHORT))  # from any rank
        assert f"{FEW} messages from " in text
        assert "wait for a receive here, and later ones wait there for them (PSP_RTS_MAX)" in text
        for _ in range(2 * FEW):
            world.recv(tag=1, timeout=BOUND)
        assert world.recv(tag=2, timeout=BOUND) == b"wanted"
        pscompy.wait_all(sends, timeout=BOUND)
    assert caplog.text.count("PSP_RTS_MAX") == 1
    assert f"{FEW} messages wait for a receive there" in caplog.text
