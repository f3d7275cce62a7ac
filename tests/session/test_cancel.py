"""Receives between sessions of this process are cancelled at random; every message is counted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pscompy
from tests.session.puppets import ONLY

FAR = 60.0
EAGER, LONG = 10, 300_000
CHANCES = 8  # how many times a receive may be cancelled before it waits without a limit


@dataclass
class Ends:
    send: Callable[[Any, int], pscompy.Request]
    send_obj: Callable[[Any, int], pscompy.Request]
    into: Any  # the World or connection that receives


@pytest.fixture(scope="module", params=["loop", "shm", "tcp"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    if request.param == "loop":
        with pscompy.World() as world:
            yield Ends(
                lambda data, tag: world.isend(data, 0, tag),
                lambda obj, tag: world.isend_obj(obj, 0, tag),
                world,
            )
            check_hit(world.stats)
        return
    config = ONLY[request.param]
    with pscompy.Session(config=config) as here, pscompy.Session(config=config) as there:
        socket = there.listen("127.0.0.1")
        left = here.connect(socket.address)
        left.open(FAR)
        right = socket.accept(FAR)
        assert left.transport == request.param
        yield Ends(left.isend, left.isend_obj, right)
        check_hit(there.stats)


def check_hit(stats: dict[str, int]) -> None:
    """Check that some messages had arrived or were in flight when their receive was cancelled;
    otherwise this test would prove nothing."""

    assert stats["given_back"]


# ---- kinds of messages ----


def payload(kind: str, number: int, long: bool) -> Any:
    data = number.to_bytes(4, "little") * ((LONG if long else EAGER) // 4)
    if kind == "object":
        return {"number": number, "field": np.frombuffer(data, np.uint32).copy()}
    return data


def number_of(kind: str, got: Any) -> int:
    if kind == "object":
        assert (got["field"] == got["number"]).all()
        return int(got["number"])
    data = bytes(got)
    assert data == data[:4] * (len(data) // 4)
    return int.from_bytes(data[:4], "little")


async def receive(ends: Ends, kind: str, tag: int) -> int:
    """Receive the next message; returns the number in it."""
    if kind == "object":
        return number_of(kind, await ends.into.irecv_obj(tag=tag))
    if kind == "new":
        return number_of(kind, await ends.into.irecv(tag=tag))
    buffer = bytearray(LONG)
    if kind == "into":
        status = await ends.into.irecv(buffer, tag=tag)
    else:
        request = ends.into.recv_init(buffer, tag=tag)
        request.start()
        await request
        status = request.status
    return number_of(kind, buffer[: status.nbytes])


# ---- ways to cancel a receive ----


async def in_a_task(coroutine: Any, moment: int) -> int | None:
    task = asyncio.ensure_future(coroutine)
    for _ in range(moment):
        await asyncio.sleep(0)
    task.cancel()
    try:
        return int(await task)
    except asyncio.CancelledError:
        return None


async def in_time(coroutine: Any, moment: int) -> int | None:
    try:
        return int(await asyncio.wait_for(coroutine, moment * 1e-4))
    except asyncio.TimeoutError:
        return None


async def in_its_timeout(coroutine: Any, moment: int) -> int | None:
    if not hasattr(asyncio, "timeout"):  # Python 3.10 has no asyncio.timeout
        return await in_time(coroutine, moment)
    try:
        async with asyncio.timeout(moment * 1e-4):
            return int(await coroutine)
    except TimeoutError:
        return None


WAYS = [in_a_task, in_a_task, in_time, in_its_timeout]
tags = itertools.count(1)
messages = st.lists(st.tuples(st.sampled_from(["new", "into", "persistent"]), st.booleans()))
objects = st.lists(st.tuples(st.just("object"), st.booleans()))
cancellations = st.lists(
    st.tuples(st.sampled_from(WAYS), st.integers(0, 6)), min_size=1, max_size=12
)
turns = st.lists(st.integers(0, 6), min_size=1, max_size=12)


async def send_all(ends: Ends, what: list[tuple[str, bool]], tag: int, pauses: list[int]) -> None:
    pause = itertools.cycle(pauses)
    sends = []
    for number, (kind, long) in enumerate(what):
        for _ in range(next(pause)):
            await asyncio.sleep(0)
        send = ends.send_obj if kind == "object" else ends.send
        sends.append(asyncio.ensure_future(send(payload(kind, number, long), tag)))
    await asyncio.gather(*sends)


async def exchange(
    ends: Ends, what: list[tuple[str, bool]], how: list[Any], pauses: Any
) -> list[int]:
    """Returns the numbers of the messages in the order in which they came."""
    tag = next(tags)
    ways = itertools.cycle(how)
    sending = asyncio.ensure_future(send_all(ends, what, tag, pauses))
    got = []
    for kind, _ in what:
        number = None
        for _ in range(CHANCES):
            way, moment = next(ways)
            number = await way(receive(ends, kind, tag), moment)
            if number is not None:
                break
        else:
            number = await asyncio.wait_for(receive(ends, kind, tag), FAR)
        got.append(number)
    await asyncio.wait_for(sending, FAR)
    assert ends.into.iprobe(tag=tag) is None
    return got


RUN = settings(max_examples=100)


@RUN
@given(what=messages, how=cancellations, pauses=turns)
def test_messages(ends: Ends, what: Any, how: Any, pauses: Any) -> None:
    assert asyncio.run(exchange(ends, what, how, pauses)) == list(range(len(what)))


@RUN
@given(what=objects, how=cancellations, pauses=turns)
def test_objects(ends: Ends, what: Any, how: Any, pauses: Any) -> None:
    assert asyncio.run(exchange(ends, what, how, pauses)) == list(range(len(what)))
