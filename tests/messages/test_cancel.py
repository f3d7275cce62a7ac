"""Cancelled awaits lose no message, duplicate none, and keep the order."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
from collections.abc import Callable

import pytest

from pscompy.api.c import _binding
from tests.messages.cancelling import FAR, cancelled, message, once, received, received_with
from tests.messages.conftest import SIZES, Pair

# ---- receives that have not matched ----


def waiting(pair: Pair, kind: str) -> _binding.Request:
    if kind == "new":
        return pair.right.irecv()
    if kind == "memory":
        return pair.right._irecv_memory()
    if kind == "into":
        return pair.right.irecv(bytearray(SIZES[-1]))
    request = pair.right.recv_init(bytearray(SIZES[-1]))
    request.start()
    return request


@pytest.mark.parametrize("kind", ["new", "memory", "into", "persistent"])
def test_a_receive_that_has_not_matched_is_withdrawn(pair: Pair, kind: str, nbytes: int) -> None:
    async def main() -> None:
        request = waiting(pair, kind)
        await cancelled(request)
        assert request.done()
        assert request.cancelled()
        with pytest.raises(concurrent.futures.CancelledError):
            request.exception()
        sent = asyncio.ensure_future(pair.left.isend(message(nbytes)))
        assert await received(pair) == message(nbytes)
        await sent

    asyncio.run(main())


def test_a_time_limit_withdraws(pair: Pair, nbytes: int) -> None:
    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pair.right.irecv(), 0.01)
        if hasattr(asyncio, "timeout"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await pair.right.irecv()
        sent = asyncio.ensure_future(pair.left.isend(message(nbytes)))
        assert await received(pair) == message(nbytes)
        await sent

    asyncio.run(main())


def test_a_persistent_receive_starts_again(pair: Pair) -> None:
    async def main() -> None:
        buffer = bytearray(4)
        request = pair.right.recv_init(buffer)
        for n in range(4):
            request.start()
            await cancelled(request)
            request.start()
            pair.left.isend(b"%04d" % n)
            await asyncio.wait_for(once(request), FAR)
            assert buffer == b"%04d" % n

    asyncio.run(main())


def test_a_shield_keeps_the_receive(pair: Pair, nbytes: int) -> None:
    async def main() -> None:
        request = pair.right.irecv()
        await cancelled(asyncio.shield(request))
        assert not request.done()
        sent = asyncio.ensure_future(pair.left.isend(message(nbytes)))
        assert await asyncio.wait_for(once(request), FAR) == message(nbytes)
        await sent

    asyncio.run(main())


def test_a_receive_that_another_task_awaits_stays(pair: Pair) -> None:
    async def main() -> None:
        request = pair.right.irecv()
        other = asyncio.create_task(once(request))
        await asyncio.sleep(0)
        await cancelled(request)
        assert not request.done()
        pair.left.isend(b"for the other")
        assert await asyncio.wait_for(other, FAR) == b"for the other"

    asyncio.run(main())


def test_a_coroutine_that_is_closed_withdraws(pair: Pair) -> None:
    async def main() -> None:
        request = pair.right.irecv()
        coroutine = once(request)
        coroutine.send(None)
        coroutine.close()
        assert request.cancelled()

    asyncio.run(main())


# ---- tasks that are cancelled before they start ----


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("how", ["wait_for", "gather", "task"])
def test_a_task_that_has_not_begun_withdraws(pair: Pair, how: str, into: bool) -> None:
    """asyncio wraps each request in a task; the program keeps no other reference to the request."""

    def receive() -> _binding.Request:
        return pair.right.irecv(bytearray(10) if into else None)

    async def begin() -> None:
        if how == "wait_for":
            await asyncio.wait_for(receive(), 0)
        elif how == "gather":
            await asyncio.gather(receive(), receive())
        else:
            await asyncio.ensure_future(receive())

    async def main() -> None:
        task = asyncio.create_task(begin())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, asyncio.TimeoutError)):
            await task
        del task
        sent = asyncio.ensure_future(pair.left.isend(message(10)))
        assert await received(pair) == message(10)
        await sent

    asyncio.run(main())


def test_what_such_a_task_has_received_goes_back(pair: Pair) -> None:
    async def main() -> None:
        pair.left.isend(b"there")
        pair.settle()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pair.right.irecv(), 0)
        assert await received(pair) == b"there"

    asyncio.run(main())


def test_a_request_that_the_program_has_stays(pair: Pair) -> None:
    async def main() -> None:
        request = pair.right.irecv()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(request, 0)
        assert not request.done()
        pair.left.isend(b"still awaited")
        assert await asyncio.wait_for(request, FAR) == b"still awaited"

    asyncio.run(main())


def test_a_receive_whose_call_back_starts_it_again_goes_on(pair: Pair) -> None:
    again = pair.right.recv_init(bytearray(5), 2)
    again.start()
    seen: list[_binding.Request] = []
    again.add_done_callback(seen.append)
    del again
    gc.collect()
    pair.left.isend(b"first", 2)
    pair.until(lambda: seen)
    (request,) = seen
    seen.clear()
    request.start()  # the finalizer of the request has run before
    del request
    gc.collect()
    pair.left.isend(b"again", 2)
    pair.settle()
    assert pair.right.iprobe() is None


# ---- sends ----


def test_a_send_that_has_begun_goes_on(make: Callable[..., Pair]) -> None:
    pair = make("tcp")
    data = bytearray(message(SIZES[-1]))

    async def main() -> None:
        request = pair.left.isend(data)
        await cancelled(request)
        assert not request.done()
        with pytest.raises(BufferError):
            data.clear()
        assert await received_with(pair, request) == message(SIZES[-1])
        data.clear()

    asyncio.run(main())


def test_a_send_that_has_not_begun_is_withdrawn(make: Callable[..., Pair]) -> None:
    pair = make("tcp", RTS_MAX=1)

    async def main() -> None:
        first = pair.left.isend(message(SIZES[-1]))
        request = pair.left.isend(message(SIZES[-1], 1))
        await cancelled(request)
        assert request.cancelled()
        assert await received_with(pair, first) == message(SIZES[-1])
        pair.settle()
        assert pair.right.iprobe() is None

    asyncio.run(main())
