"""A receive of an object that nobody holds takes no object."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import pscompy
from pscompy.api.c.guard import inside
from pscompy.api.request import Request
from pscompy.parcel.archive import Head
from pscompy.parcel.objects import Objects
from tests.waiting import expect_soon

OBJECTS = {"small": {"a": 1}, "array": np.arange(500_000), "arrays": [np.arange(200_000)] * 3}


def same(one: object, other: object) -> bool:
    return bool(np.array_equal(np.asarray(one, object), np.asarray(other, object)))


def dropped_objects(here: pscompy.Connection, there: pscompy.Connection, what: str) -> None:
    """Drop receives before, during and after the arrival of an object."""
    first = OBJECTS[what]
    for seconds in (None, 0, 0.002, 0.2):
        held: Request | None = there.irecv_obj(tag=1)
        if seconds is None:
            held = None
            gc.collect()
        sent = here.isend_obj(first, 1), here.isend_obj("second", 1)
        sender = threading.Thread(target=pscompy.wait_all, args=(sent, 60))
        sender.start()
        if seconds:
            with pytest.raises(pscompy.Timeout):
                there.recv(tag=7, timeout=seconds)
        del held
        gc.collect()
        assert same(there.recv_obj(tag=1, timeout=60), first)
        assert there.recv_obj(tag=1, timeout=60) == "second"
        sender.join()


@pytest.fixture
def pair() -> Iterator[tuple[pscompy.Connection, pscompy.Connection]]:
    with pscompy.Session() as one, pscompy.Session() as two:
        listener = one.listen()
        there = two.connect(listener.address)
        there.send(b"hello")
        yield listener.accept(timeout=60), there


@pytest.mark.parametrize("what", ["array", "arrays"])
def test_one_that_becomes_unwanted_while_its_chunks_are_asked_for(
    pair: tuple[pscompy.Connection, pscompy.Connection], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunks are asked for outside of `guard`, because their memory may have to be registered;
    so another thread may give the receive back meanwhile."""
    here, there = pair
    fetch, posted, within = Objects.fetch, there.irecv_obj(tag=1), []

    def fetch_slowly(objects: Objects, head: Head) -> list[Request]:
        within.append(inside())
        if len(within) == 1:
            dropping = threading.Thread(target=posted._requeue)
            dropping.start()
            dropping.join()
        return fetch(objects, head)

    monkeypatch.setattr(Objects, "fetch", fetch_slowly)
    sent = here.isend_obj(OBJECTS[what], 1), here.isend_obj("second", 1)
    with pytest.raises(pscompy.Cancelled):
        posted.wait(60)
    assert same(there.recv_obj(tag=1, timeout=60), OBJECTS[what])
    assert there.recv_obj(tag=1, timeout=60) == "second"
    pscompy.wait_all(sent, 60)
    assert not any(within)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("what", OBJECTS)
def test_dropped(transport: str, what: str) -> None:
    config = {name.upper(): int(name == transport) for name in ("shm", "tcp")}
    with pscompy.Session(config=config) as one, pscompy.Session(config=config) as two:
        listener = one.listen()
        there = two.connect(listener.address)
        there.send(b"hello")
        here = listener.accept(timeout=60)
        here.recv(timeout=60)
        dropped_objects(here, there, what)
        before = two.stats["requests_used"]
        there.irecv_obj()
        there.irecv(bytearray(10))
        gc.collect()
        expect_soon(lambda: two.stats["requests_used"] == before)


def test_from_any_rank_and_over_endpoints() -> None:
    with pscompy.World() as world:
        world.irecv_obj()
        world.irecv()
        world.irecv(source=0)
        gc.collect()
        world.isend(b"1", 0)
        world.isend_obj([1], 0)
        assert world.recv(timeout=60) == b"1"
        assert world.recv_obj(timeout=60) == [1]
