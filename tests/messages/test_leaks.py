"""No object outlives its use, and the fast path allocates nothing."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

import pscompy
from tests.messages.conftest import Pair

ROUNDS = 300
NOISE = 40  # objects that the interpreter and the tests themselves create


def expect(error: type[BaseException], call: Callable[..., object], *args: Any) -> None:
    try:
        call(*args)
    except error:
        return
    raise AssertionError("it did not raise")


def send_recv(pair: Pair) -> None:
    into = bytearray(4)
    pair.left.send(b"abcd")
    pair.right.recv(into)
    pair.left.send([b"ab", b"cd"], 5)
    pair.right.recv_status(5)
    assert pair.left.sendrecv(b"x", sendtag=3, recvtag=3) == b"x"


def requests(pair: Pair) -> None:
    receive = pair.right.irecv()
    receive.add_done_callback(lambda request: None)
    sent = pair.left.isend(b"r" * 20_000)
    pscompy.wait_all([sent, receive])
    pscompy.wait_any([sent, receive])
    pair.right.irecv(tag=4)
    pair.left.isend(b"dropped", 4)
    pair.right.recv(tag=4)


def errors(pair: Pair) -> None:
    expect(TypeError, pair.left.send, {})
    expect(TypeError, pair.left.send, [b"x", {}])
    expect(BufferError, pair.right.recv, b"x")
    expect(ValueError, pair.left.send, b"", -1)
    expect(TypeError, pair.left.send)
    expect(pscompy.Timeout, pair.right.recv, None, 1, 0)
    expect(pscompy.Timeout, pair.right.probe, 1, 0)
    cancelled = pair.right.irecv()
    cancelled.cancel()
    expect(pscompy.Cancelled, cancelled.result)
    pair.left.send(b"long")
    expect(pscompy.Truncated, pair.right.recv, bytearray(1))


def probes(pair: Pair) -> None:
    pair.left.send(b"p")
    pair.right.probe()
    assert pair.right.iprobe() is not None
    message = pair.right.mprobe()
    message.recv()
    assert pair.right.improbe() is None
    pair.left.send(b"back")
    pair.right.mprobe()
    pair.right.recv()


def events(pair: Pair) -> None:
    worker = pair.sides[0].worker
    event = worker.event()
    event._complete([1])
    event.result()
    failed = worker.event(None, pair.left)
    failed._fail(ValueError())
    expect(ValueError, failed.wait)
    worker.event().cancel()
    worker.drain()


def messages(pair: Pair) -> None:
    got: list[Any] = []
    pair.sides[0].worker.on_message(1, lambda *message: got.append(message))
    pair.left.am_send(1, b"h", b"p")
    pair.until(lambda: got)


def awaiting(pair: Pair) -> None:
    async def main() -> None:
        receive = pair.right.irecv()
        pair.left.isend(b"x")
        await receive

    asyncio.run(main())


def traced_growth(run: Callable[[], None]) -> int:
    before = tracemalloc.get_traced_memory()[0]
    run()
    return tracemalloc.get_traced_memory()[0] - before


@pytest.mark.parametrize(
    "step",
    [send_recv, requests, errors, probes, events, messages, awaiting],
    ids=lambda it: it.__name__,
)
def test_no_leaks(loop_pair: Pair, step: Callable[[Pair], None]) -> None:
    rounds = ROUNDS

    def run() -> None:
        for _ in range(rounds):
            step(loop_pair)
        gc.collect()

    watched = [
        loop_pair.left,
        loop_pair.sides[0].worker,
        pscompy.Request,
        pscompy.Status,
        None,
        True,
    ]
    tracemalloc.start()
    try:
        run()
        objects, references = len(gc.get_objects()), [sys.getrefcount(it) for it in watched]
        growth = [traced_growth(run) for _ in range(3)]
        grown = len(gc.get_objects()) - objects
        more = [sys.getrefcount(it) - n for it, n in zip(watched, references, strict=True)]
    finally:
        tracemalloc.stop()
    assert grown < NOISE
    assert max(more) < NOISE
    assert min(growth) < rounds * 16 + 8192  # a leak grows each time, a cache only once


def allocated_by_sends(pair: Pair) -> int:
    """The bytes that are allocated during two sends; most of them are the numbers of this
    function."""
    send, data = pair.left.send, bytearray(8)
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        send(data)
        send(data, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    pair.right.recv(data)
    pair.right.recv(data)
    return peak - before


def test_a_small_blocking_send_allocates_nothing(make: Callable[..., Pair]) -> None:
    """Other threads of the process may allocate something during one of several tries."""
    pair = make("shm")
    pair.left.send(bytearray(8))
    pair.right.recv(bytearray(8))
    tries = [allocated_by_sends(pair) for _ in range(5)]
    assert min(tries) < 40, tries


def test_a_session_that_is_dropped_goes(make: Callable[..., Pair]) -> None:
    """A dropped connection is collected together with its requests and its worker."""
    import weakref

    pair = make("loop")
    ended = weakref.ref(pair.left)
    pair.left.isend(b"x")
    pair.right.irecv().cancel()
    pair.close()
    pair.left = pair.right = None  # type: ignore[assignment]
    gc.collect()
    assert ended() is None
