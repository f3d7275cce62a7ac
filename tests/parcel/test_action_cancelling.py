"""Cancelling actions, and their time limits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import time

import helpers
import pytest
from actions import ended, release
from puppets import BOUND

import pscompy
from tests.waiting import expect_soon


@pytest.fixture
def link(serving, transport):
    return serving(transport)


def test_what_has_not_begun_is_dropped(serving):
    link = serving("shm", PARCEL_THREADS=1)
    held = link.c.submit(helpers.holds_a_thread)
    waiting = [link.c.submit(helpers.notes, n) for n in range(4)]
    assert waiting[1].cancel()
    assert waiting[1].cancel()
    assert waiting[1].cancelled()
    link.c.call(helpers.go)  # this call arrives after the cancellation
    held.result(BOUND)
    for n in (0, 2, 3):
        waiting[n].result(BOUND)
    assert link.c.call(helpers.seen) == [0, 2, 3]
    assert not waiting[0].cancel()


def test_a_running_action_sees_it(link):
    future = link.c.submit(helpers.until_cancelled)
    expect_soon(lambda: link.c.call(helpers.begun))
    assert future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(BOUND)
    expect_soon(lambda: link.c.call(helpers.seen) == ["cancelled"])


def begin(link):
    """An action that runs until it is cancelled, and has begun."""
    link.c.call(helpers.seen, clear=True)
    future = link.c.submit(helpers.until_cancelled)
    expect_soon(lambda: link.c.call(helpers.begun))
    return future


def test_a_cancelled_await_cancels_the_action(link):
    async def main():
        future = begin(link)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.05)
        assert future.cancelled()
        expect_soon(lambda: link.c.call(helpers.seen) == ["cancelled"])
        shielded = begin(link)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(shielded), 0.05)
        assert not link.c.call(helpers.seen)
        assert shielded.cancel()
        expect_soon(lambda: link.c.call(helpers.seen) == ["cancelled"])

    asyncio.run(main())


def test_an_action_that_never_ends_has_a_time_limit(link):
    """An action that has not begun within its limit is dropped, so the limits become longer until
    one has."""

    def begins_before(limit):
        future = link.c.with_options(timeout=limit).submit(helpers.until_cancelled)
        assert type(ended(future)) is pscompy.Timeout
        return link.c.call(helpers.begun)

    assert any(map(begins_before, (0.1, 1.0, 10.0)))
    expect_soon(lambda: "cancelled" in link.c.call(helpers.seen))


def test_time_limits_of_several(link):
    """Limits are requested from the longest to the shortest. Each is kept, however long
    requesting takes."""
    order, ends, futures = [], {}, []
    for n in (3, 2, 1):
        begun = time.monotonic()
        future = link.c.with_options(timeout=n / 10).submit(helpers.holds_a_thread)
        ends[n] = begun + n / 10, time.monotonic() + n / 10
        future.add_done_callback(lambda _, n=n: order.append(n))
        futures.append(future)
    assert all(type(ended(future)) is pscompy.Timeout for future in futures)
    assert sorted(order) == [1, 2, 3]
    for one, other in itertools.permutations(ends, 2):
        if ends[one][1] < ends[other][0]:
            assert order.index(one) < order.index(other)
    link.peer(release)
