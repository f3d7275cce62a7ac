"""Synchronous sends: ssend and issend, whose message a receive must have matched."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import pscompy
from tests.messages.conftest import Pair

SHORT = 0.02


def bytes_of(nbytes: int) -> bytes:
    return bytes(i % 251 for i in range(nbytes))


@pytest.mark.parametrize("nbytes", [0, 10, 30_000, 3_000_000])
def test_a_request_is_done_after_its_receive(pair: Pair, nbytes: int) -> None:
    data = bytes_of(nbytes)
    request = pair.left.issend(data, 5)
    pair.until(lambda: pair.right.iprobe(5))
    pair.settle()
    assert not request.test()
    receive = pair.right.irecv(tag=5)
    assert pair.wait(receive, request) == [data, None]


@pytest.mark.parametrize("nbytes", [0, 10, 30_000, 3_000_000])
def test_a_receive_that_is_there(pair: Pair, nbytes: int) -> None:
    data, into = bytes_of(nbytes), bytearray(nbytes)
    receive = pair.right.irecv(into, 5)
    assert pair.wait(receive, pair.left.issend(buf=data, tag=5)) == [(pair.right, 5, nbytes), None]
    assert into == data


def test_each_kind_of_buffer(pair: Pair) -> None:
    grid = np.arange(12.0).reshape(3, 4)
    for buf, arrives in (
        ([b"ab", bytearray(b"c"), memoryview(b"")], b"abc"),
        (grid[:, 1], grid[:, 1].tobytes()),
        (grid.T, grid.T.tobytes()),
    ):
        request = pair.left.issend(buf)
        pair.settle()
        assert not request.test()
        assert pair.wait(pair.right.irecv(), request) == [arrives, None]


def test_the_buffer_belongs_to_the_request(pair: Pair) -> None:
    data = bytearray(10)
    request = pair.left.issend(data)
    pair.settle()
    with pytest.raises(BufferError):
        data.clear()
    pair.wait(pair.right.irecv(), request)
    data.clear()


def test_it_is_among_plain_messages(pair: Pair) -> None:
    sends = [getattr(pair.left, name)(name.encode()) for name in ("isend", "issend", "isend")]
    pair.settle()
    assert [it.test() for it in sends] == [True, False, True]
    came = pair.wait(*(pair.right.irecv() for _ in sends))
    assert came == [b"isend", b"issend", b"isend"]
    pair.wait(*sends)


def test_a_timeout_leaves_it_in_flight(pair: Pair) -> None:
    with pytest.raises(pscompy.Timeout, match="send") as caught:
        pair.left.ssend(b"late", 3, SHORT)
    request: Any = caught.value.request
    assert not request.cancel()
    assert pair.wait(pair.right.irecv(tag=3), request) == [b"late", None]


def test_one_that_has_not_left_is_cancelled(make: Any) -> None:
    pair = make("shm", RTS_MAX=1024)
    first = [pair.left.issend(b"") for _ in range(1024)]
    last = pair.left.issend(b"last", 2)
    assert last.cancel()
    assert last.cancelled()
    with pytest.raises(pscompy.Timeout) as caught:
        pair.left.ssend(b"last", 2, SHORT)
    assert caught.value.request is None
    receives = [pair.right.irecv() for _ in first]
    assert pair.wait(*receives, *first) == [b""] * 1024 + [None] * 1024
    pair.settle()
    assert pair.right.iprobe() is None


def test_a_receive_that_is_withdrawn_has_not_matched(pair: Pair) -> None:
    withdrawn = pair.right.irecv(tag=4)
    assert withdrawn.cancel()
    request = pair.left.issend(b"x", 4)
    pair.settle()
    assert pair.right.improbe(4)  # the Message is dropped, and so goes back to the queue
    pair.settle()
    assert not request.test()
    assert pair.wait(pair.right.irecv(tag=4), request) == [b"x", None]


def test_a_request_is_awaited(loop_pair: Pair) -> None:
    async def both() -> tuple[bytearray, None]:
        c = loop_pair.left
        return await asyncio.gather(c.irecv(), c.issend(b"awaited"))

    assert asyncio.run(both()) == [b"awaited", None]


def test_memory_that_is_lent(make: Any) -> None:
    """The request ends when the view is dropped; lent memory of which there is no view yet has not
    been received."""
    with pscompy.World() as world:
        block = world.empty(1 << 20, "u1")
        block[:] = 7
        request = world.issend(block, dest=0, lend=True)
        assert not request.test()
        assert not block.flags.writeable
        view = world.recv_view(source=0)
        assert view[-1] == 7
        del view
        request.wait(60)
        assert block.flags.writeable


def test_a_world() -> None:
    with pscompy.World() as world:
        for part in (world, *world.endpoints(1), world.dup()):
            request = part.issend(b"to myself", dest=0, tag=2)
            with pytest.raises(pscompy.Timeout):
                request.wait(SHORT)
            assert part.recv(source=0) == b"to myself"
            request.wait(60)
            receive = part.irecv()
            part.ssend(b"again", 0)
            assert receive.wait(60) == b"again"
        with pytest.raises(IndexError, match="no rank 3"):
            world.ssend(b"", 3)
        with pytest.raises(IndexError, match="one rank"):
            world.issend(b"", pscompy.ANY_SOURCE)
        with pytest.raises(TypeError, match="dest is the number"):
            world.ssend(b"", "1")  # type: ignore[arg-type]
