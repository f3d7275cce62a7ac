"""Actions on another process, over each transport."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading

import helpers
import numpy as np
import pytest
from actions import ended, release
from puppets import BOUND

import pscompy
from pscompy.core import lib
from tests.waiting import expect_soon


@pytest.fixture
def link(serving, transport):
    return serving(transport)


@pytest.fixture
def shm(serving):
    return serving("shm")


# ---- calls ----


def test_all_arguments_reach_the_function(link):
    made = link.c.call(helpers.echo, 1, "two", [3], timeout=4, on_sent=5, function=6, self=7)
    assert made == ((1, "two", [3]), {"timeout": 4, "on_sent": 5, "function": 6, "self": 7})


@pytest.mark.parametrize("count", [0, 10, 5000, 1 << 18])
def test_arrays(link, count):
    field = np.arange(count, dtype=float)
    assert np.array_equal(link.c.call(helpers.double, field), field * 2)


def test_a_future_is_one_of_concurrent_futures(link):
    futures = [link.c.submit(helpers.echo, n) for n in range(50)]
    assert all(isinstance(future, concurrent.futures.Future) for future in futures)
    _, rest = concurrent.futures.wait(futures, BOUND)
    assert not rest
    assert [future.result() for future in futures] == [((n,), {}) for n in range(50)]


def test_await(link):
    async def talk():
        futures = [link.c.submit(helpers.echo, n) for n in range(5)]
        results = [await future for future in futures]
        with pytest.raises(KeyError):
            await link.c.submit(helpers.fails, KeyError, "x")
        return results

    assert asyncio.run(asyncio.wait_for(talk(), BOUND)) == [((n,), {}) for n in range(5)]


def test_the_thread_that_waits_takes_the_answer_itself(link):
    threads = []

    def call():
        future = link.c.submit(helpers.echo)
        future.add_done_callback(lambda _: threads.append(threading.current_thread()))
        assert future.result(BOUND) == ((), {})
        return threading.current_thread() in threads

    expect_soon(call)  # another thread takes the answer if it arrives before this one waits


def test_waiting_again_after_a_timeout(link):
    future = link.c.submit(helpers.holds_a_thread)
    for wait in (future.result, future.exception):
        for timeout in (-1, 0, 0.01):
            with pytest.raises(concurrent.futures.TimeoutError):
                wait(timeout)
    link.peer(release)
    assert future.result(BOUND) is None


def register_back(here):
    pscompy.action(lambda: here.c.call(helpers.where)[0], name="back")


def test_both_ways_at_once(link):
    """The peer calls an action of this process while this process waits for the peer's."""
    link.peer(register_back)
    pscompy.action(_back, name="back")
    assert link.c.call(_back) == os.getpid()


def _back():
    raise AssertionError("this is the other process's to run")


def test_threads_and_inline(link):
    assert link.c.call(helpers.in_a_thread).startswith("pscompy actions")
    pid, _ = link.c.call(helpers.where)
    assert pid == link.peer.pid


def test_no_more_threads_than_allowed(serving):
    link = serving("shm", PARCEL_THREADS=2)
    futures = [link.c.submit(helpers.in_a_thread) for _ in range(40)]
    assert len({future.result(BOUND) for future in futures}) <= 2


def test_more_calls_than_are_taken_in_at_once(serving):
    link = serving("shm", PARCEL_THREADS=1)
    first = link.c.submit(helpers.holds_a_thread)
    futures = [link.c.submit(helpers.echo, n) for n in range(300)]
    link.peer(release)
    first.result(BOUND)
    assert [future.result(BOUND)[0][0] for future in futures] == list(range(300))


def test_current_action_outside_of_one():
    assert pscompy.current_action() is None


def test_on_sent(link):
    told = threading.Event()
    field = np.ones(1 << 18)
    future = link.c.with_options(on_sent=told.set).submit(helpers.double, field)
    assert told.wait(BOUND)
    field[:] = 9
    assert future.result(BOUND)[0] == 2


@pytest.mark.parametrize(("timeout", "error"), [("1", TypeError), (-1, ValueError)])
def test_a_timeout_is_checked_at_once(link, timeout, error):
    with pytest.raises(error, match="a timeout is None or"):
        link.c.with_options(timeout=timeout)


# ---- exceptions ----


def test_an_exception_arrives_with_its_traceback(link):
    error = ended(link.c.submit(helpers.fails, ValueError, "no good"))
    assert type(error) is ValueError
    assert error.args == ("no good",)
    assert "in fails" in str(error.__cause__)


def test_an_exception_that_cannot_be_had_here(link):
    for future in (link.c.submit(helpers.fails_oddly), link.c.submit(helpers.fails, SystemExit)):
        error = ended(future)
        assert type(error) is pscompy.RemoteError
        assert "helpers.py" in str(error)


def test_a_result_that_cannot_be_pickled(link):
    error = ended(link.c.submit(helpers.returns_a_lock))
    assert type(error) is pscompy.ParcelError
    assert "returns_a_lock" in str(error)


def test_arguments_that_cannot_be_pickled(link):
    with pytest.raises(TypeError):
        link.c.submit(helpers.echo, threading.Lock())
    assert link.c.call(helpers.echo) == ((), {})


def test_arguments_that_the_peer_cannot_put_together(link):
    class Mine:
        pass

    Mine.__qualname__, Mine.__module__ = "Mine", "helpers"
    helpers.Mine = Mine
    try:
        error = ended(link.c.submit(helpers.echo, Mine()))
    finally:
        del helpers.Mine
    assert type(error) is pscompy.ParcelError
    assert "Mine" in str(error)


def test_what_is_not_called_properly(link):
    for asked in (5, (), ("name", [], {}), (1, (), {}), ("no such action", (), {})):
        objects = link.c._action_peer()
        answer = objects.answers.irecv(77)
        objects.calls.begin(objects.calls.take_apart(asked), 77 << 1)
        good, (_, text) = answer.wait(BOUND)
        assert not good
        assert "ProtocolError" in text or "Unsupported" in text


def test_garbage_in_place_of_a_call_and_of_an_answer(link):
    links = link.c._action_peer()
    answer = links.answers.irecv(78)
    links.calls.heads.send(b"PCL\x01" + bytes(50), 78 << 1)
    assert not answer.wait(BOUND)[0]
    held = link.c.submit(helpers.holds_a_thread)
    number = next(links.numbers) - 1
    link.peer(lambda here: here.c._action_peer().answers.heads.send(b"garbage", number))
    assert type(ended(held)) is pscompy.ProtocolError
    link.peer(release)
    assert link.c.call(helpers.echo) == ((), {})


# ---- ends ----


def test_the_peer_dies_while_it_runs_one(link):
    futures = [link.c.submit(helpers.dies), link.c.submit(helpers.until_cancelled)]
    assert all(isinstance(ended(future), (pscompy.PeerLost, pscompy.Closed)) for future in futures)


def test_the_connection_is_closed(link):
    future = link.c.submit(helpers.holds_a_thread)
    expect_soon(lambda: link.c.call(helpers.begun))
    link.session.close()
    assert isinstance(ended(future), (pscompy.Closed, pscompy.PeerLost))
    link.peer(release)
    with pytest.raises(pscompy.Closed):
        link.c.submit(helpers.echo)


def test_threads_end_with_the_session(connect):
    link = connect("shm")
    link.session._plain.service().start()
    name = f"pscompy actions {link.session.name}"
    link.peer.begin(lambda here: here.c.call(helpers.echo))
    link.peer.result()
    assert any(thread.name.startswith(name) for thread in threading.enumerate())
    link.session.close()
    expect_soon(lambda: not any(it.name.startswith(name) for it in threading.enumerate()))


def test_serve_for_some_time(open_session):
    session = open_session()
    with pytest.raises(pscompy.Timeout, match=r"has served for 0\.01 s"):
        session.serve(timeout=0.01)
    used = session.stats["requests_used"]
    with pytest.raises(pscompy.Timeout):
        session.serve(timeout=0.01)
    expect_soon(lambda: session.stats["requests_used"] <= used)
    session.close()
    with pytest.raises(pscompy.Closed):
        session.serve()


def test_an_interpreter_ends_though_an_action_does_not(shm):
    shm.c.submit(helpers.until_cancelled, 1000.0)
    expect_soon(lambda: shm.c.call(helpers.begun))
    assert shm.peer.finish() == 0


# ---- cost ----


def test_many_leave_nothing_behind(shm):
    link = shm

    def round_of(count):
        """Returns the resident memory of the peer."""
        futures = [link.c.submit(helpers.double, np.ones(n % 3000)) for n in range(count)]
        futures += [link.c.submit(helpers.fails, ValueError, n) for n in range(count // 4)]
        for future in futures[::7]:
            future.cancel()
        concurrent.futures.wait(futures, BOUND)
        link.c.call(helpers.echo)
        return link.peer.resident()

    round_of(400)
    taken = [round_of(400)]

    def growth():
        taken.append([round_of(400) for _ in range(20)][-1])
        return taken[-1] - taken[-2]

    # Calls that are left behind make each growth a great one, a late arena of malloc only one.
    assert any(growth() < 4 << 20 for _ in range(5)), taken
    service = link.session._plain.service()
    expect_soon(lambda: not service._asked)
    expect_soon(lambda: link.peer(lambda here: len(here.session._plain.service()._calls)) == 0)


def test_no_context_is_shared():
    kinds = (lib.PSC_CONTEXT_OBJECTS, lib.PSC_CONTEXT_CHUNKS, lib.PSC_CONTEXT_ACTIONS)
    assert len({kind + base for kind in (0, *kinds) for base in (1, 2, 4, 5, 6, 7)}) == 24
    # the contexts above are the core's own
    assert lib.PSC_CONTEXT_END + max(kinds) <= lib.PSC_CONTEXT_AM
