"""Closing while sends are pending that nobody receives, and what the log says of a long close."""

from __future__ import annotations

import logging

import pytest
from puppets import BOUND, ONLY

import pscompy
from pscompy.control import connections

LONG = 4096
PENDING = 50
NEVER = 10 * BOUND  # PSP_SHUTDOWN_TIMEOUT: the close ends before it


def post(here, count):
    here.sends = [here.c.isend(bytes([i]) * LONG, tag=1) for i in range(count)]


def close_session(here):
    here.session.close()


@pytest.fixture
def pending(connect, transport):
    """A link over which both sides have sent long messages; nobody receives them."""
    link = connect(transport, RENDEZVOUS=1000, SHUTDOWN_TIMEOUT=NEVER)
    link.peer(post, PENDING)
    link.sends = [link.c.isend(bytes(LONG), tag=1) for _ in range(PENDING)]
    return link


@pytest.mark.parametrize("how", ["connection", "session"])
@pytest.mark.parametrize("transport", ONLY)
def test_both_close_with_sends_that_nobody_receives(pending, how):
    pending.peer.begin(close_session if how == "session" else lambda here: here.c.close())
    (pending.session if how == "session" else pending.c).close()
    pending.peer.result()
    for send in pending.sends:
        assert isinstance(send.exception(BOUND), pscompy.Closed)


@pytest.mark.parametrize("transport", ONLY)
def test_what_has_a_receive_arrives_although_both_close(pending):
    received = [bytearray(LONG) for _ in range(3)]
    waiting = [pending.c.irecv(it, tag=1) for it in received]
    pending.peer.begin(close_session)
    pscompy.wait_all(waiting, timeout=BOUND)
    pending.session.close()
    pending.peer.result()
    assert received == [bytes([i]) * LONG for i in range(3)]


@pytest.mark.parametrize("transport", ONLY)
def test_the_other_side_receives_what_was_sent_before_the_close(pending):
    pending.peer.begin(close_session)
    for i in range(PENDING):
        assert pending.c.recv(tag=1, timeout=BOUND) == bytes([i]) * LONG
    pending.peer.result()
    for send in pending.sends:
        assert isinstance(send.exception(BOUND), pscompy.Closed)


def test_a_long_close_says_what_it_waits_for(connect, transport, caplog):
    link = connect(transport, RENDEZVOUS=1000, SHUTDOWN_TIMEOUT=2)
    link.peer.stop()
    for _ in range(3):
        link.c.isend(bytes(LONG))
    peer, name = link.c.peer, link.session.name
    with caplog.at_level(logging.WARNING, "pscompy"):
        link.session.close()
    waits = f"{peer} over {transport} has not received 3 messages of {3 * LONG} bytes"
    assert f"{name} closes: {waits}; it waits for 2 s at most (PSP_SHUTDOWN_TIMEOUT)" in caplog.text


def test_a_long_close_names_some_of_many_peers(open_session, caplog, monkeypatch):
    monkeypatch.setattr(connections, "WAITS_MAX", 2)
    here, there = open_session(RENDEZVOUS=1000, SHUTDOWN_TIMEOUT=1.1), open_session()
    address = there.listen("127.0.0.1").address
    for peer in [here.connect(address) for _ in range(4)]:
        peer.open(BOUND)
        peer.isend(bytes(LONG))
    with caplog.at_level(logging.WARNING, "pscompy"):
        here.close()
    told = [record.getMessage() for record in caplog.records]
    assert ["has not received 1 messages" in it for it in told] == [True, True, False]
    assert told[2] == f"{here.name} closes: it waits for 4 connections in all"
