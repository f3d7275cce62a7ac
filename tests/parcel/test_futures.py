"""Futures, as the functions of concurrent.futures use them, whenever those come."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

import pscompy

BOUND = 60
Futures = list[Any]  # pscompy.Future
Make = Callable[[], pscompy.Future]


@pytest.fixture
def make(connect: Callable[..., Any]) -> Make:
    worker = connect("shm").c._worker
    return lambda: pscompy.Future(lambda future: None, worker)


def test_it_has_the_attributes_of_the_base(make: Make) -> None:
    assert vars(concurrent.futures.Future()).keys() - vars(make()).keys() == {"_condition"}


@pytest.mark.parametrize("error", [None, ValueError("on purpose")], ids=["value", "error"])
@pytest.mark.parametrize("seen", [False, True], ids=["unseen", "seen"])
def test_a_future_that_ends(make: Make, seen: bool, error: Exception | None) -> None:
    future = make()
    called: list[Any] = []
    if seen:
        assert not future.done()
        future.add_done_callback(called.append)
    assert future.finish(7, error)
    assert not future.finish(8, None)
    assert not future.cancel()
    assert (future.done(), future.running(), future.cancelled()) == (True, False, False)
    future.add_done_callback(called.append)
    assert called == [future] * (1 + seen)
    assert future.exception(0) is error
    if error is None:
        assert future.result(0) == 7
    else:
        with pytest.raises(ValueError, match="on purpose"):
            future.result(0)
    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_result(9)


@pytest.mark.parametrize("seen", [False, True], ids=["unseen", "seen"])
def test_a_future_that_is_cancelled(make: Make, seen: bool) -> None:
    future = make()
    called: list[Any] = []
    if seen:
        future.add_done_callback(called.append)
    assert future.cancel()
    assert future.cancel()
    assert not future.finish(7, None)
    assert future.cancelled()
    assert called == [future] * seen
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(0)


def test_two_threads_cancel_a_future_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    future, both = make(), threading.Barrier(2)
    withdrawn: list[Any] = []
    future._withdraw = withdrawn.append
    base = concurrent.futures.Future.cancel

    def cancel(future: Any) -> bool:
        both.wait(BOUND)
        return base(future)

    monkeypatch.setattr(concurrent.futures.Future, "cancel", cancel)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        begun = [threads.submit(future.cancel) for _ in range(2)]
        assert [it.result(BOUND) for it in begun] == [True, True]
    assert withdrawn == [future]


def test_a_future_that_runs(make: Make) -> None:
    future = make()
    assert future.set_running_or_notify_cancel()
    assert future.running()
    assert not future.cancel()
    assert future.finish(7, None)
    assert future.result(0) == 7


def test_waiting_for_some(make: Make) -> None:
    futures = [make() for _ in range(6)]
    futures[3].finish(3, None)
    done, rest = concurrent.futures.wait(futures, 0, concurrent.futures.FIRST_COMPLETED)
    assert done == {futures[3]}
    futures[1].cancel()
    futures[4].finish(None, KeyError())
    done, rest = concurrent.futures.wait(futures, 0, concurrent.futures.FIRST_EXCEPTION)
    assert (done, len(rest)) == ({futures[n] for n in (1, 3, 4)}, 3)


def _wait(futures: Futures) -> object:
    return concurrent.futures.wait(futures, BOUND).done


def _take_in_order_of_completion(futures: Futures) -> object:
    return set(concurrent.futures.as_completed(futures, BOUND))


def _ask(futures: Futures) -> object:
    return {future for future in futures if future.result(BOUND) == 7}


def _be_called(futures: Futures) -> object:
    called: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for future in futures:
        future.add_done_callback(called.put)
    return {called.get(timeout=BOUND) for _ in futures}


@pytest.mark.parametrize("way", [_wait, _take_in_order_of_completion, _ask, _be_called])
def test_futures_end_while_another_thread_begins_to_wait(
    make: Make, way: Callable[[Futures], object]
) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        for _ in range(50):
            futures = [make() for _ in range(100)]
            waits = thread.submit(way, futures)
            assert all(future.finish(7, None) for future in futures)
            assert waits.result(BOUND) == set(futures)
