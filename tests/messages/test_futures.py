"""Behaviour that asyncio and concurrent.futures expect of a future."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

import pscompy
from pscompy.api.c import _binding
from tests.messages.cancelling import FAR, once
from tests.messages.conftest import Pair


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
