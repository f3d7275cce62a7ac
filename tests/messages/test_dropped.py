"""A receive that nobody holds takes no message: it is withdrawn, or its message goes back."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import pscompy
from pscompy.api.c import _binding
from tests.messages.cancelling import FAR, message
from tests.messages.conftest import Pair

Make = Callable[[Pair, bytearray], Any]


def persistent(pair: Pair, buffer: bytearray) -> _binding.Request:
    request = pair.right.recv_init(buffer)
    request.start()
    return request


def from_any(pair: Pair, buffer: bytearray) -> _binding.Request:
    ranks = _binding.Communicator()
    ranks._bind(pair.sides[-1].worker, 0, 1)
    return ranks.irecv()


def timed_out(pair: Pair, buffer: bytearray) -> _binding.Request:
    request = pair.right.irecv()
    with pytest.raises(pscompy.Timeout):
        request.wait(0)
    return request


def unwatched(pair: Pair, buffer: bytearray) -> _binding.Request:
    request = pair.right.irecv()
    request.add_done_callback(print)
    assert request.remove_done_callback(print) == 1
    return request


KINDS: dict[str, Make] = {
    "new": lambda pair, buffer: pair.right.irecv(),
    "with-tag": lambda pair, buffer: pair.right.irecv(tag=0),
    "into": lambda pair, buffer: pair.right.irecv(buffer),
    "pieces": lambda pair, buffer: pair.right.irecv([buffer, bytearray(1)]),
    "memory": lambda pair, buffer: pair.right._irecv_memory(),
    "persistent": persistent,
    "from-any": from_any,
    "timed-out": timed_out,
    "unwatched": unwatched,
    "cycle": lambda pair, buffer: _cycle(pair.right.irecv()),
}


def _cycle(request: _binding.Request) -> list[Any]:
    made: list[Any] = [request]
    made.append(made)
    return made


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Make:
    return KINDS[request.param]


def ended(pair: Pair, request: _binding.Request) -> None:
    """Make progress until the request has completed, unknown to the program."""
    pair.until(lambda: request._finished)


def used(pair: Pair) -> int:
    return int(pair.sides[-1].core.counters()["requests_used"])


def next_two(pair: Pair, sent: _binding.Request) -> list[Any]:
    """The next messages; `sent` is the send of the first."""
    second = pair.left.isend(b"second")
    first = pair.right.irecv()
    return pair.wait(sent, second, first, pair.right.irecv())[2:]


def test_dropped_before_the_message(pair: Pair, kind: Make, nbytes: int) -> None:
    before = used(pair)
    kind(pair, bytearray(nbytes))
    gc.collect()
    assert used(pair) == before
    sent = pair.left.isend(message(nbytes))
    pair.settle()
    assert next_two(pair, sent) == [message(nbytes), b"second"]


def test_dropped_while_the_message_arrives(pair: Pair, kind: Make, nbytes: int) -> None:
    """Dropped after any number of passes."""
    for passes in range(12):
        held = kind(pair, bytearray(nbytes))
        sent = pair.left.isend(message(nbytes, passes))
        for _ in range(passes):
            pair.progress()
        del held
        gc.collect()
        assert next_two(pair, sent) == [message(nbytes, passes), b"second"]


def test_dropped_when_it_is_complete(pair: Pair, kind: Make, nbytes: int) -> None:
    """The program has not learnt of the completion."""
    held = kind(pair, bytearray(nbytes))
    sent = pair.left.isend(message(nbytes))
    request = held[0] if isinstance(held, list) else held
    ended(pair, request)
    pair.wait(sent)
    del held, request
    gc.collect()
    assert next_two(pair, sent) == [message(nbytes), b"second"]


@pytest.mark.parametrize("learn", ["done", "test", "result", "wait", "exception", "status"])
def test_a_message_that_the_program_knows_of_is_gone(pair: Pair, learn: str) -> None:
    request = pair.right.irecv()
    pair.left.isend(b"first")
    ended(pair, request)
    known = getattr(request, learn)
    assert learn == "status" or known() != b""
    del request, known
    second = pair.left.isend(b"second")
    assert pair.wait(second, pair.right.irecv())[1] == b"second"


def test_all_that_wait_all_waits_for_is_known(loop_pair: Pair) -> None:
    """Also what follows the first request that fails."""
    requests = [loop_pair.right.irecv(bytearray(1)), loop_pair.right.irecv()]
    loop_pair.left.isend(b"too long")
    loop_pair.left.isend(b"known")
    with pytest.raises(pscompy.Truncated):
        pscompy.wait_all(requests)
    del requests
    assert loop_pair.right.iprobe() is None


def test_a_call_back_is_told_of_one_start(pair: Pair) -> None:
    """A persistent receive that is dropped after its next start takes no message."""
    told: list[Any] = []
    request = pair.right.recv_init(bytearray(6))
    request.start()
    request.add_done_callback(told.append)
    pair.left.isend(b"first")
    pair.until(lambda: told)
    told.clear()
    request.start()
    del request
    gc.collect()
    sent = pair.left.isend(b"second")
    pair.settle()
    assert pair.right.iprobe() is not None
    assert pair.wait(sent, pair.right.irecv())[1] == b"second"


def test_a_call_back_holds_it(pair: Pair) -> None:
    told: list[Any] = []
    pair.right.irecv().add_done_callback(lambda request: told.append(request.result()))
    pair.right.irecv().add_done_callback(lambda request: told.append(None))
    gc.collect()
    for data in (b"1", b"2"):
        pair.left.isend(data)
    pair.until(lambda: len(told) == 2)
    gc.collect()
    assert told == [b"1", None]
    assert pair.right.iprobe() is None


def test_dropped_while_an_interrupted_receive_goes_on(make: Callable[..., Pair]) -> None:
    """A blocking receive that a time limit ends while its message is arriving."""
    pair = make("tcp", scheme="am")
    sent = pair.left.isend(message(3_000_000))
    for _ in range(20):
        pair.sides[0].worker.progress()
    with pytest.raises(pscompy.Timeout):
        pair.right.recv(bytearray(3_000_000), timeout=0.05)
    assert next_two(pair, sent) == [message(3_000_000), b"second"]


# ---- loops that are closed ----


async def received(awaited: Awaitable[Any]) -> Any:
    return await awaited


async def gathered(awaited: Awaitable[Any]) -> Any:
    return await asyncio.gather(awaited, asyncio.sleep(FAR))


LOOPS: dict[str, Callable[[asyncio.AbstractEventLoop, Any], Any]] = {
    "task": lambda loop, request: loop.create_task(received(request)),
    "wait_for": lambda loop, request: loop.create_task(asyncio.wait_for(received(request), FAR)),
    "ensure": lambda loop, request: asyncio.ensure_future(request, loop=loop),
    "gather": lambda loop, request: loop.create_task(gathered(request)),
}


def await_in_a_closed_loop(request: Any, how: str, turns: float = 0.02) -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # a pending task was destroyed
    LOOPS[how](loop, request)
    loop.run_until_complete(asyncio.sleep(turns))
    loop.close()


@pytest.mark.parametrize("collect", [True, False], ids=["collected", "not-collected"])
@pytest.mark.parametrize("how", LOOPS)
def test_awaited_in_a_loop_that_is_closed(pair: Pair, how: str, collect: bool, nbytes: int) -> None:
    """If the collector has not run before the message arrives, it goes back on its arrival."""
    before = used(pair)
    await_in_a_closed_loop(pair.right.irecv(), how)
    if collect:
        gc.collect()
        assert used(pair) == before
    sent = pair.left.isend(message(nbytes))
    pair.settle()
    assert next_two(pair, sent) == [message(nbytes), b"second"]


@pytest.mark.parametrize("how", LOOPS)
def test_held_beside_a_closed_loop(pair: Pair, how: str) -> None:
    request = pair.right.irecv()
    await_in_a_closed_loop(request, how)
    sent = pair.left.isend(b"still received")
    assert pair.wait(sent, request)[1] == b"still received"


def test_awaited_in_an_open_loop_it_holds_itself(pair: Pair) -> None:
    got: list[Any] = []

    async def one() -> None:
        got.append(await pair.right.irecv())

    async def main() -> None:
        asyncio.get_running_loop().create_task(one())
        await asyncio.sleep(0.01)
        gc.collect()
        await pair.left.isend(b"awaited")
        while not got:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), FAR))
    assert got == [b"awaited"]
