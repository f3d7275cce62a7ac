"""Cancelled awaits lose no message, duplicate none, and keep the order."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import pscompy
from pscompy.api import aio
from pscompy.binding import _binding
from tests.messages.conftest import Pair

SIZES = (10, 30_000, 3_000_000)
FAR = 60.0


@pytest.fixture(params=SIZES)
def nbytes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


async def cancelled(awaiting: Awaitable[Any], turns: int = 3) -> None:
    """Await in a task that is cancelled after some turns of the event loop."""

    async def one() -> Any:
        return await awaiting

    task = asyncio.create_task(one())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def received(pair: Pair, tag: int = -1) -> bytes:
    return bytes(await asyncio.wait_for(once(pair.right.irecv(tag=tag)), FAR))


async def once(request: _binding.Request) -> Any:
    return await request


def message(nbytes: int, seed: int = 0) -> bytes:
    return (bytes(range(seed, 200 + seed)) * (nbytes // 200 + 1))[:nbytes]


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


def test_a_receive_that_nobody_has_offered_goes_on(pair: Pair) -> None:
    buffer = bytearray(5)
    again = pair.right.recv_init(bytearray(5), 2)
    again.start()
    seen: list[_binding.Request] = []
    again.add_done_callback(seen.append)
    pair.right.irecv(buffer, 1)
    del again
    gc.collect()
    for tag in (1, 2):
        pair.left.isend(b"first", tag)
    pair.until(lambda: seen)
    assert buffer == b"first"
    (request,) = seen
    seen.clear()
    request.start()  # the finalizer of the request has run before
    del request
    gc.collect()
    pair.left.isend(b"again", 2)
    pair.settle()
    assert pair.right.iprobe() is None


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


def on_its_way(pair: Pair, request: _binding.Request) -> None:
    """The peer has announced the message and stalls, because its side makes no progress."""
    for _ in range(20):
        pair.sides[0].worker.progress()
    pair.sides[1].worker.progress()
    assert not request._finished


@pytest.fixture
def stalling(make: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr(aio, "SETTLE_SECONDS", 0.05)
    return make("tcp", scheme="am")


def test_a_peer_that_stalls_keeps_the_buffer(stalling: Pair) -> None:
    """The next receive gets the message when it arrives, and later messages do not overtake it."""
    pair = stalling
    buffer = bytearray(SIZES[-1])
    data = message(SIZES[-1])

    async def main() -> None:
        sent = pair.left.isend(data)
        request = pair.right.irecv(buffer)
        on_its_way(pair, request)
        await cancelled(request)
        assert not request.done()
        with pytest.raises(BufferError):
            buffer.clear()
        following = pair.left.isend(b"following")
        again, last = pair.right.irecv(), pair.right.irecv()
        assert await asyncio.wait_for(asyncio.gather(sent, following, again, last), FAR) == [
            None,
            None,
            data,
            b"following",
        ]
        assert request.cancelled()
        buffer.clear()

    asyncio.run(main())


def test_a_message_that_moves_settles_first(make: Callable[..., Pair]) -> None:
    pair = make("tcp", scheme="am")
    buffer = bytearray(SIZES[-1])

    async def main() -> None:
        sent = pair.left.isend(message(SIZES[-1]))
        request = pair.right.irecv(buffer)
        on_its_way(pair, request)
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
        sent = pair.left.isend(message(SIZES[-1]))
        request = pair.right.irecv(buffer)
        on_its_way(pair, request)
        task = asyncio.create_task(once(request))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not request.done()
        assert await received_with(pair, sent) == message(SIZES[-1])

    asyncio.run(main())


async def received_with(pair: Pair, sent: _binding.Request) -> bytes:
    _, data = await asyncio.wait_for(asyncio.gather(sent, pair.right.irecv()), FAR)
    return bytes(data)


def test_a_peer_that_is_lost_ends_what_goes_back(stalling: Pair) -> None:
    pair = stalling

    async def main() -> None:
        sent = pair.left.isend(message(SIZES[-1]))
        request = pair.right.irecv(bytearray(SIZES[-1]))
        on_its_way(pair, request)
        await cancelled(request)
        again = pair.right.irecv()
        pair.sides[1].engine.fail(pair.sides[1].handles[0], -7)
        for waiting in (request, again):
            with pytest.raises(pscompy.PeerLost):
                await asyncio.wait_for(once(waiting), FAR)
        del sent

    asyncio.run(main())


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


# ---- behaviour that asyncio and concurrent.futures expect of a future ----


def test_wait(pair: Pair) -> None:
    async def main() -> None:
        first, second = pair.right.irecv(tag=1), pair.right.irecv(tag=2)
        tasks = (first, second) if hasattr(asyncio, "timeout") else (once(first), once(second))
        both = {asyncio.ensure_future(it) if asyncio.iscoroutine(it) else it for it in tasks}
        done, pending = await asyncio.wait(both, timeout=0.01)
        assert (done, pending) == (set(), both)
        pair.left.isend(b"second", 2)
        done, pending = await asyncio.wait(both, timeout=FAR, return_when="FIRST_COMPLETED")
        assert [it.result() for it in done] == [b"second"]
        pair.left.isend(b"first", 1)
        assert await asyncio.wait(both, timeout=FAR) == (both, set())
        assert first.exception() is None

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(asyncio, "timeout"), reason="Python 3.10 waits for tasks instead")
def test_wait_ends_at_the_first_exception(pair: Pair) -> None:
    async def main() -> None:
        bad, never = pair.right.irecv(bytearray(1), 1), pair.right.irecv(tag=2)
        pair.left.isend(b"too long", 1)
        done, pending = await asyncio.wait({bad, never}, timeout=FAR, return_when="FIRST_EXCEPTION")
        assert (done, pending) == ({bad}, {never})
        assert isinstance(bad.exception(), pscompy.Truncated)
        assert never.cancel()

    asyncio.run(main())


def test_callbacks_that_are_added_in_a_loop_run_there(make: Callable[..., Pair]) -> None:
    """Another thread completes the request while nothing else is awaited."""
    pair = make("shm")

    async def main() -> None:
        here = threading.get_ident()
        called = asyncio.Event()
        seen = []

        def callback(request: _binding.Request) -> None:
            seen.append((threading.get_ident(), request.result()))
            called.set()

        request = pair.right.irecv(tag=1)
        request.add_done_callback(callback)
        removed = pair.right.irecv(tag=2)
        removed.add_done_callback(callback)
        assert removed.remove_done_callback(callback) == 1
        thread = threading.Thread(target=lambda: (pair.left.send(b"x", 1), request.wait(FAR)))
        thread.start()
        await asyncio.wait_for(called.wait(), FAR)
        thread.join()
        assert seen == [(here, b"x")]
        assert removed.cancel()

    asyncio.run(main())


def test_what_a_request_says_of_its_end(pair: Pair) -> None:
    request = pair.right.irecv()
    assert not request.done()
    assert not request.cancelled()
    with pytest.raises(pscompy.Timeout):
        request.exception(0.01)
    pair.wait(pair.left.isend(b"x"), request)
    assert (request.done(), request.cancelled(), request.exception()) == (True, False, None)
    short = pair.right.irecv(bytearray())
    pair.left.isend(b"x")
    pair.until(short.test)
    assert isinstance(short.exception(), pscompy.Truncated)
    assert not short.cancelled()
