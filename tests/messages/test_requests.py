"""Requests: repeated results, call-backs, dropped requests, and waiting for several."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import pscompy
from pscompy.api.request import Request, wait_all, wait_any
from tests.messages.conftest import Pair

BIG = 2_000_000


class Array(bytearray):
    """A buffer whose end of life can be observed by a weak reference."""


def test_results_may_be_repeated(pair: Pair) -> None:
    receive = pair.right.irecv()
    pair.wait(pair.left.isend(b"x"), receive)
    for _ in range(3):
        assert receive.test()
        assert receive.wait() is receive.wait(timeout=0) is receive.result()
    assert receive.result() == b"x"


def test_wait_times_out_and_leaves_it_in_flight(pair: Pair) -> None:
    receive = pair.right.irecv()
    with pytest.raises(pscompy.Timeout) as caught:
        receive.wait(0.01)
    assert caught.value.request is receive
    assert isinstance(caught.value, TimeoutError)
    sent = pair.left.isend(b"late")
    assert pair.wait(sent, receive)[1] == b"late"


def test_a_timeout_pickles_without_its_request(loop_pair: Pair) -> None:
    receive = loop_pair.right.irecv()
    with pytest.raises(pscompy.Timeout) as caught:
        receive.wait(0)
    assert pickle.loads(pickle.dumps(caught.value)).request is None
    assert receive.cancel()


def test_cancel(pair: Pair) -> None:
    receive = pair.right.irecv()
    assert receive.cancel()
    assert receive.cancel()
    for _ in range(2):
        with pytest.raises(pscompy.Cancelled):
            receive.result()
    pair.left.send(b"for the next")
    pair.settle()
    assert pair.right.recv(timeout=60) == b"for the next"
    done = pair.right.irecv()
    pair.wait(pair.left.isend(b""), done)
    assert not done.cancel()


def test_cancel_of_a_matched_receive_gives_the_message_back(pair: Pair) -> None:
    receive = pair.right.irecv()
    sent = pair.left.isend(b"m" * BIG)
    pair.left.send(b"second")
    pair.settle(5)
    if receive.cancel():
        first, second = pair.right.irecv(), pair.right.irecv()
        pair.wait(sent, first, second)
        assert len(first.result()) == BIG
        assert second.result() == b"second"
    else:
        pair.wait(sent, receive)
        assert len(receive.result()) == BIG


def test_dropped_sends_complete(pair: Pair) -> None:
    data, into = Array(b"d" * BIG), bytearray(BIG)
    ended = weakref.ref(data)
    pair.left.isend(data)
    del data
    assert ended() is not None
    gc.collect()
    pair.wait(pair.right.irecv(into))
    pair.until(lambda: ended() is None)
    assert into == b"d" * BIG


def test_callbacks(pair: Pair) -> None:
    called: list[Any] = []
    receive = pair.right.irecv()
    receive.add_done_callback(called.append)
    receive.add_done_callback(lambda request: called.append(request.result()))
    receive.add_done_callback(len)
    assert receive.remove_done_callback(len) == 1
    assert receive.remove_done_callback(len) == 0
    pair.left.isend(b"x")
    pair.until(lambda: called)
    assert called == [receive, b"x"]
    receive.add_done_callback(called.append)
    assert called[2:] == [receive]


def test_callbacks_that_raise(loop_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    receive = loop_pair.right.irecv()
    for _ in range(2):
        receive.add_done_callback(lambda request: 1 / 0)
    loop_pair.wait(loop_pair.left.isend(b""), receive)
    receive.add_done_callback(lambda request: 1 / 0)
    assert [it.exc_type for it in seen] == [ZeroDivisionError] * 3
    with pytest.raises(TypeError):
        receive.add_done_callback(None)  # type: ignore[arg-type]


def test_a_callback_may_use_the_connection(loop_pair: Pair) -> None:
    def again(request: Request) -> None:
        loop_pair.left.send(b"from the call-back")

    receive = loop_pair.right.irecv(tag=1)
    receive.add_done_callback(again)
    loop_pair.left.send(b"", 1)
    assert loop_pair.right.recv(tag=0, timeout=60) == b"from the call-back"


def test_wait_all(pair: Pair) -> None:
    if not pair.one_ended:
        sends = [pair.left.isend(b"x", i) for i in range(5)]
        threading.Thread(target=wait_all, args=(sends,)).start()
    else:
        for i in range(5):
            pair.left.isend(b"x", i)
    requests = [pair.right.irecv(tag=i) for i in (4, 2, 0, 1, 3)]
    assert wait_all(requests, timeout=60) == [b"x"] * 5
    assert wait_all(iter(requests)) == [b"x"] * 5
    assert wait_all([]) == []


def test_wait_all_raises_after_all_have_ended(loop_pair: Pair) -> None:
    short, good = loop_pair.right.irecv(bytearray(1), 1), loop_pair.right.irecv(tag=2)
    loop_pair.left.isend(b"too long", 1)
    loop_pair.left.isend(b"good", 2)
    with pytest.raises(pscompy.Truncated):
        wait_all([short, good])
    assert good.result() == b"good"


def test_wait_all_times_out(loop_pair: Pair) -> None:
    done, never = loop_pair.right.irecv(tag=1), loop_pair.right.irecv(tag=2)
    loop_pair.left.send(b"", 1)
    with pytest.raises(pscompy.Timeout):
        wait_all([done, never], 0.02)
    assert done.test()
    assert never.cancel()


def test_wait_any(loop_pair: Pair) -> None:
    requests = [loop_pair.right.irecv(tag=i) for i in range(3)]
    with pytest.raises(pscompy.Timeout):
        wait_any(requests, 0.01)
    loop_pair.left.send(b"two", 2)
    assert wait_any(requests, timeout=60) == (2, b"two")
    loop_pair.left.send(b"zero", 0)
    loop_pair.settle()
    assert wait_any(requests) == (0, b"zero")
    assert requests[1].cancel()
    with pytest.raises(pscompy.Cancelled):
        wait_any([requests[1]])
    with pytest.raises(ValueError, match="no requests"):
        wait_any([])


def test_wait_any_is_woken(make: Callable[..., Pair]) -> None:
    pair = make("shm")
    requests = [pair.right.irecv(tag=i) for i in range(3)]
    timer = threading.Timer(0.1, lambda: pair.left.send(b"m", 1))
    timer.start()
    assert wait_any(requests, timeout=60) == (1, b"m")
    timer.join()
    assert requests[0].cancel()
    assert requests[2].cancel()


def test_requests_of_different_sessions(make: Callable[..., Pair]) -> None:
    requests = [make("loop").left.irecv(), make("loop").left.irecv()]
    for wait in (wait_all, wait_any):
        with pytest.raises(ValueError, match="different sessions"):
            wait(requests)
    for request in requests:
        assert request.cancel()


def test_only_requests_can_be_waited_for(loop_pair: Pair) -> None:
    with pytest.raises(TypeError, match="only Requests"):
        wait_all([b"x"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        wait_any(5)  # type: ignore[arg-type]


def test_pickling_says_what_to_send_instead(loop_pair: Pair) -> None:
    with pytest.raises(TypeError, match="send its result"):
        pickle.dumps(loop_pair.left.isend(b""))


def test_several_threads_wait_for_one_request(make: Callable[..., Pair]) -> None:
    pair = make("shm")
    receive = pair.right.irecv()
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(receive.wait(60))) for _ in range(4)]
    for thread in threads:
        thread.start()
    sent = pair.left.isend(b"r" * BIG)
    sent.wait(60)
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(it is results[0] for it in results)


# ---- events: requests that the program completes ----


def test_events(loop_pair: Pair) -> None:
    worker = loop_pair.sides[0].worker
    event = worker.event()
    with pytest.raises(pscompy.Timeout):
        event.wait(0)
    timer = threading.Timer(0.05, lambda: event._complete("value"))
    timer.start()
    assert event.wait(60) == "value"
    timer.join()
    assert not event._complete("again")
    assert event.status is None


def test_events_that_fail(loop_pair: Pair) -> None:
    event = loop_pair.sides[0].worker.event()
    error = pscompy.ConnectError("no", candidates={"shm": "no"})
    assert event._fail(error)
    assert not event._complete(1)
    for _ in range(2):
        with pytest.raises(pscompy.ConnectError) as caught:
            event.wait()
        assert caught.value is error
    with pytest.raises(TypeError):
        event._fail(ValueError)  # type: ignore[arg-type]


def test_events_that_are_cancelled(loop_pair: Pair) -> None:
    event = loop_pair.sides[0].worker.event(None, loop_pair.left)
    assert event.cancel()
    assert not event._complete(1)
    with pytest.raises(pscompy.Cancelled) as caught:
        event.result()
    assert caught.value.peer == "left"


def test_events_of_a_type(loop_pair: Pair) -> None:
    class Special(Request):
        pass

    event = loop_pair.sides[0].worker.event(Special)
    assert type(event) is Special
    assert event._complete(None)
    assert event.result() is None
    with pytest.raises(TypeError):
        loop_pair.sides[0].worker.event(int)  # type: ignore[arg-type]


def test_a_short_message_arrives_in_the_memory_of_a_receive_without_buffer(pair: Pair) -> None:
    """The message is notified once, with its data: no second step learns the length or copies."""
    receives = [pair.right.irecv() for _ in range(3)]
    before = pair.sides[-1].core.counters()["unexpected_copied"]
    sent = [bytes([number]) * 100 for number in range(3)]
    for data in sent:
        pair.left.send(data)
    assert pair.wait(*receives) == sent
    assert [request.status.nbytes for request in receives] == [100, 100, 100]
    assert pair.sides[-1].core.counters()["unexpected_copied"] == before


def test_more_receives_without_buffer_than_share_the_memory_for_short_messages(
    pair: Pair,
) -> None:
    receives = [pair.right.irecv(tag=number) for number in range(600)]
    sent = [b"%d" % number + bytes(number % 7 * 300) for number in range(600)]
    for number in reversed(range(600)):
        pair.left.send(sent[number], number)
        pair.progress()
    assert pair.wait(*receives) == sent
