"""The text of a Timeout says what was awaited, and what is there instead."""

from __future__ import annotations

import pytest

import pscompy
from tests.waiting import expect_soon

SHORT = 0.05


@pytest.fixture
def world(monkeypatch):
    for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pscompy.World() as world:
        yield world


def text_of(call):
    with pytest.raises(pscompy.Timeout) as caught:
        call()
    return str(caught.value)


def test_an_object_where_bytes_are_awaited(world):
    world.send_obj({}, dest=0, tag=2)
    text = text_of(lambda: world.recv(source=0, tag=3, timeout=SHORT))
    assert text.startswith("receive from 0 ")
    assert "with tag 3: not done within 0.05 s" in text
    assert text.endswith("an object with tag 2 from 0 is waiting: recv_obj(tag=2) takes it")
    assert world.recv_obj(tag=2) == {}


def test_another_object_than_the_awaited_one(world):
    world.send_obj({}, dest=0, tag=3)
    for source, call in (
        ("any peer", lambda: world.recv_obj(tag=4, timeout=SHORT)),
        ("any peer", lambda: world.irecv_obj(tag=4).wait(SHORT)),
        ("0 ", lambda: world.recv_obj(source=0, tag=4, timeout=SHORT)),
        ("0 ", lambda: world.irecv_obj(source=0, tag=4).wait(SHORT)),
        ("0 ", lambda: pscompy.wait_all([world.irecv_obj(source=0, tag=4)], timeout=SHORT)),
    ):
        text = text_of(call)
        assert text.startswith(f"receive of an object from {source}")
        assert "with tag 4: not done within 0.05 s; an object with tag 3 from 0" in text
        assert text.endswith(" is waiting: recv_obj(tag=3) takes it")
    assert "of an object from any peer with tag 4, in flight" in repr(world.irecv_obj(tag=4))
    assert world.recv_obj(tag=3) == {}


def test_bytes_with_another_tag(world):
    world.send(b"", dest=0)
    waiting = "; a bytes message with tag 0 from 0 is waiting: recv() takes it"
    for call in (
        lambda: world.recv(tag=1, timeout=SHORT),
        lambda: world.irecv(source=0, tag=1).wait(SHORT),
        lambda: pscompy.wait_all([world.irecv(source=0, tag=1)], timeout=SHORT),
        lambda: pscompy.wait_any([world.irecv(source=0, tag=1)], timeout=SHORT),
    ):
        assert waiting in text_of(call)


def test_a_result_has_a_timeout(world):
    request = world.irecv(source=0, tag=7)
    with pytest.raises(pscompy.Timeout) as caught:
        request.result(timeout=SHORT)
    assert caught.value.request is request
    assert "from 0 " in repr(request)
    assert "with tag 7, in flight" in repr(request)
    world.send(b"x", dest=0, tag=7)
    assert request.result(timeout=60) == b"x"


def test_why_no_connection_came_up(open_session):
    connection = open_session(RETRY="1000").connect("psp://127.0.0.1:9")
    cause = "the last attempt to connect: psp://127.0.0.1:9 cannot be"
    for call in (lambda: connection.recv(timeout=SHORT), lambda: connection.open(timeout=SHORT)):
        expect_soon(lambda call=call: cause in text_of(call))  # the first attempt takes its time


def test_the_rank_of_a_message_is_named(world):
    for name, call in (
        ("dest", lambda: world.send(b"", dest=None)),
        ("source", lambda: world.recv(source="0")),
        ("rank", lambda: world[None]),
        ("dest", lambda: world.send_obj(1, dest=None)),
        ("source", lambda: world.irecv_obj(source="0")),
    ):
        with pytest.raises(TypeError, match=f"^{name} is the number of a rank"):
            call()


def test_a_receive_of_an_object_ends_with_the_session(open_session):
    world = pscompy.World()
    request = world.irecv_obj()
    world.close()
    with pytest.raises(pscompy.Closed):
        request.wait(60)
