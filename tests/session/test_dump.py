"""`session.dump()`: what a session has in flight, in words."""

from __future__ import annotations

import pytest

import pscompy
from tests.waiting import expect_soon

LONG = bytes(1 << 24)


@pytest.fixture
def pair(open_session, transport):
    """Two sessions of this process: the connections of the one that dials, and of the other."""
    config = {name: int(name == transport.upper()) for name in ("SHM", "TCP")}
    server, client = open_session("server", **config), open_session("client", **config)
    listening = server.listen("127.0.0.1")
    dialed = client.connect(listening.address)
    dialed.send(b"hello")
    accepted = listening.accept(60)
    accepted.recv(timeout=60)
    return server, accepted, client, dialed


def test_requests_and_messages_of_both_sides(pair, transport):
    server, accepted, client, dialed = pair
    dialed.send(b"123", tag=3)
    sends = dialed.isend(LONG, tag=5)
    receives = dialed.irecv(tag=9)
    dialed.send_obj({"an": "object"}, tag=4)

    def show():
        server.progress()
        return server.dump()

    expect_soon(lambda: "tag 5" in show() and "tag 4" in show(), "the messages")
    text = show()
    assert "message from client (" in text
    assert f"tag 5, {len(LONG)} bytes, announced" in text
    assert "tag 3, 3 bytes, arrived" in text
    assert ", objects, arrived" in text
    assert f": UP over {transport}, lanes: 1; " in text
    other = client.dump()
    assert f"send to server ({text.split('(')[1].split(',')[0]}, pid " in other
    assert f"tag 5, {len(LONG)} bytes, announced; the peer has not received it yet" in other
    assert any("receive from server" in it and "tag 9" in it for it in other.splitlines())
    assert "waited for" not in other
    assert receives.cancel()
    received = accepted.irecv(tag=5)
    expect_soon(lambda: client.progress() + server.progress() == 0 and received.test(), "the rest")
    assert received.result() == LONG
    sends.wait(60)
    assert "tag 9" not in client.dump()
    assert "tag 5" not in client.dump()


def test_a_session_that_does_nothing(open_session):
    assert open_session().dump().count("    none") == 3


def test_a_closed_session_has_no_dump(open_session):
    session = open_session()
    session.close()
    with pytest.raises(pscompy.Closed):
        session.dump()
