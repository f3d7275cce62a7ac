"""Cancelled awaits of receives that have matched requeue their message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import pscompy
from pscompy.api import aio
from pscompy.api.c import _binding
from tests.messages.cancelling import FAR, cancelled, message, once, received, received_with
from tests.messages.conftest import SIZES, Pair, unacknowledged
from tests.waiting import expect_soon

# ---- receives that are complete ----


def kept_to_the_end(pair: Pair, request: _binding.Request, data: bytes) -> None:
    """Send a message before and after the one that completes `request`; both are unexpected."""
    pair.left.isend(b"before", 1)
    pair.settle()
    sent = pair.left.isend(data, 2)
    pair.until(lambda: request._finished)
    pair.wait(sent)
    pair.left.isend(b"after", 3)
    pair.settle()


@pytest.mark.parametrize("kind", ["new", "memory", "into", "persistent"])
def test_what_comes_before_the_task_goes_on_goes_back(pair: Pair, kind: str, nbytes: int) -> None:
    """The task is cancelled after its request completed and before it runs again; the message is
    returned to its place."""
    buffer = bytearray(nbytes)

    async def main() -> None:
        make: dict[str, Callable[[], Any]] = {
            "new": lambda: pair.right.irecv(None, 2),
            "memory": lambda: pair.right._irecv_memory(2),
            "into": lambda: pair.right.irecv(buffer, 2),
            "persistent": lambda: pair.right.recv_init(buffer, 2),
        }
        request = make[kind]()
        if kind == "persistent":
            request.start()
        task = asyncio.create_task(once(request))
        await asyncio.sleep(0)
        kept_to_the_end(pair, request, message(nbytes))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert request.cancelled()
        assert request.status is None
        buffer[:] = bytes(nbytes)
        assert [await received(pair) for _ in range(3)] == [b"before", message(nbytes), b"after"]

    asyncio.run(main())


@pytest.mark.parametrize("into", [False, True])
def test_what_was_there_before_the_await_goes_back(
    pair: Pair, into: bool, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Awaiting a complete request yields to the loop now and then; the task is cancelled there."""
    buffer = bytearray(nbytes)

    async def main() -> int:
        sends = [pair.left.isend(data, 5) for data in (message(nbytes), b"next")]
        loop = asyncio.get_running_loop()
        until, given_back = loop.time() + FAR, 0
        while not given_back:
            assert loop.time() < until
            request = pair.right.irecv(buffer if into else None, 5)
            pair.until(lambda: request._finished)  # noqa: B023
            steps = request.__await__()
            try:
                assert next(steps) is None
            except StopIteration:  # the await did not yield to the loop
                sends.append(pair.left.isend(message(nbytes), 5))
                assert await received(pair, 5) == b"next"
                sends.append(pair.left.isend(b"next", 5))
                continue
            with pytest.raises(asyncio.CancelledError):
                steps.throw(asyncio.CancelledError())
            given_back += 1
            assert request.cancelled()
        buffer[:] = bytes(nbytes)
        assert await received(pair, 5) == message(nbytes)
        assert await received(pair, 5) == b"next"
        await asyncio.gather(*sends)
        return given_back

    assert asyncio.run(main())


def test_a_truncated_message_stays_truncated(pair: Pair) -> None:
    async def main() -> None:
        request = pair.right.irecv(bytearray(100), 2)
        task = asyncio.create_task(once(request))
        await asyncio.sleep(0)
        sent = pair.left.isend(message(300), 2)
        pair.until(lambda: request._finished)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        buffer = bytearray(300)
        with pytest.raises(pscompy.Truncated) as caught:
            pair.right.recv(buffer, 2)
        assert caught.value.nbytes == 300
        assert buffer[:100] == message(300)[:100]
        await sent

    asyncio.run(main())


def test_a_result_that_somebody_has_stays(loop_pair: Pair) -> None:
    async def main() -> None:
        request = loop_pair.right.irecv()
        other = asyncio.create_task(once(request))
        await asyncio.sleep(0)
        loop_pair.left.isend(b"once")
        loop_pair.until(lambda: request._finished)
        assert request.result() == b"once"
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other
        assert not request.cancelled()
        assert loop_pair.right.iprobe() is None

    asyncio.run(main())


def test_the_buffer_of_a_receive_is_free_once_its_end_is_known(pair: Pair) -> None:
    for know in (
        _binding.Request.result,
        _binding.Request.done,
        _binding.Request.test,
        _binding.Request.exception,
    ):
        buffer = bytearray(4)
        request = pair.right.irecv(buffer)
        pair.left.isend(b"data")
        pair.until(lambda: request._finished)  # noqa: B023
        know(request)
        buffer.clear()  # BufferError while the request holds the buffer
        assert not buffer


# ---- receives whose message is in flight ----


def on_its_way(pair: Pair, buffer: bytearray) -> tuple[_binding.Request, _binding.Request]:
    """A send and a receive of the longest message. The peer has announced the message and stalls,
    because its side makes no progress."""
    sent, request = pair.left.isend(message(SIZES[-1])), pair.right.irecv(buffer)
    for _ in range(20):
        pair.sides[0].worker.progress()
    expect_soon(lambda: not unacknowledged(), "the arrival of the announcement")
    pair.sides[1].worker.progress()
    assert not request._finished
    return sent, request


@pytest.fixture
def stalling(make: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr(aio, "SETTLE_SECONDS", 0.05)
    return make("tcp", scheme="am")


def test_a_peer_that_stalls_keeps_the_buffer(stalling: Pair) -> None:
    """The next receive gets the message when it arrives, and later messages do not overtake it."""
    pair = stalling
    buffer = bytearray(SIZES[-1])

    async def main() -> None:
        sent, request = on_its_way(pair, buffer)
        await cancelled(request)
        assert not request.done()
        with pytest.raises(BufferError):
            buffer.clear()
        following = pair.left.isend(b"following")
        again, last = pair.right.irecv(), pair.right.irecv()
        assert await asyncio.wait_for(asyncio.gather(sent, following, again, last), FAR) == [
            None,
            None,
            message(SIZES[-1]),
            b"following",
        ]
        assert request.cancelled()
        buffer.clear()

    asyncio.run(main())


def test_a_message_that_moves_settles_first(make: Callable[..., Pair]) -> None:
    pair = make("tcp", scheme="am")
    buffer = bytearray(SIZES[-1])

    async def main() -> None:
        sent, request = on_its_way(pair, buffer)
        cancelling = asyncio.create_task(cancelled(request))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not cancelling.done()
        moving = asyncio.ensure_future(sent)
        await asyncio.wait_for(cancelling, FAR)
        assert request.cancelled()
        buffer.clear()
        assert await received(pair) == message(SIZES[-1])
        await moving

    asyncio.run(main())


def test_a_second_cancellation_does_not_wait(stalling: Pair, monkeypatch) -> None:
    monkeypatch.setattr(aio, "SETTLE_SECONDS", FAR)
    pair = stalling
    buffer = bytearray(SIZES[-1])

    async def main() -> None:
        sent, request = on_its_way(pair, buffer)
        task = asyncio.create_task(once(request))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not request.done()
        assert await received_with(pair, sent) == message(SIZES[-1])

    asyncio.run(main())


def test_a_peer_that_is_lost_ends_what_goes_back(stalling: Pair) -> None:
    pair = stalling

    async def main() -> None:
        sent, request = on_its_way(pair, bytearray(SIZES[-1]))
        await cancelled(request)
        again = pair.right.irecv()
        pair.sides[1].conns[0].fail(-7)
        for waiting in (request, again):
            with pytest.raises(pscompy.PeerLost):
                await asyncio.wait_for(once(waiting), FAR)
        del sent

    asyncio.run(main())
