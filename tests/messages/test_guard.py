"""Locks of pscompy's Python code: what a thread may do while it holds one."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading

import pytest

from pscompy.api.c import _binding
from pscompy.api.c.guard import (
    Limited,
    Lock,
    NoWaiting,
    condition,
    guard,
    inside,
    may_wait,
    require_waiting,
    when_outside,
)


def elsewhere(call):
    """The result of the call in another thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def test_its_thread_takes_it_again_and_others_do_not():
    lock = Lock()
    with lock, lock:
        assert not elsewhere(lambda: lock.acquire(False))
        assert elsewhere(lock.locked)
        assert inside()
        assert not elsewhere(inside)
    assert not inside()
    assert not lock.locked()
    assert elsewhere(lambda: lock.acquire(False) and (lock.release(), inside())[1] is False)
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()


def test_others_wait_for_it():
    lock, order = Lock(), []
    lock.acquire()

    def take():
        with lock:
            order.append("other")

    other = threading.Thread(target=take)
    other.start()
    order.append("first")
    lock.release()
    other.join()
    assert order == ["first", "other"]


def test_calls_are_put_off_until_the_last_lock_is_released():
    calls = []
    assert when_outside(lambda *given: given, 1, 2) == (1, 2)
    with Lock():
        with guard:
            assert when_outside(calls.append, "first") is None
            when_outside(lambda: when_outside(calls.append, inside()))
        assert calls == []
        assert elsewhere(lambda: when_outside(len, "ab")) == 2
    assert calls == ["first", False]


def test_what_is_put_off_while_such_calls_run_follows(monkeypatch):
    calls, lock, failed = [], Lock(), []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: failed.append(it.exc_type))

    def more():
        with lock:
            when_outside(calls.append, "later")
            calls.append("now")

    with lock:
        when_outside(more)
        when_outside(int, "no number")
        when_outside(calls.append, "last")
    assert calls == ["now", "later", "last"]
    assert failed == [ValueError]


def test_an_exception_leaves_it():
    with pytest.raises(KeyError), guard:
        raise KeyError
    assert not inside()


def test_no_waiting():
    with NoWaiting(), NoWaiting():
        assert not inside()
        assert not may_wait()
        assert elsewhere(may_wait)
        with pytest.raises(RuntimeError, match="would wait for ever"):
            require_waiting()
    require_waiting()
    with guard:
        assert not may_wait()


def test_a_condition_of_it():
    changed, seen = condition(Lock()), []

    def wait():
        with changed, changed:
            seen.append(changed.wait_for(lambda: seen))
            seen.append(inside())
        seen.append(inside())

    waiting = threading.Thread(target=wait)
    waiting.start()
    with changed:
        seen.append("told")
        changed.notify_all()
    waiting.join()
    assert seen[0] == "told"
    assert seen[2:] == [True, False]


# ---- signals ----


class Interrupted(Exception):
    """Raised by the signal handler."""


def interrupt(*_):
    raise Interrupted


WAYS = {
    "with": lambda lock: lock,
    "condition": condition,
    "limited": lambda lock: Limited(lock, 60),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_signal_ends_the_wait_for_it(way):
    lock, taken, over = Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            over.wait(5)  # a wait that no signal ends is over then, too

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.get_ident()
    threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGUSR1)).start()
    try:
        with pytest.raises(Interrupted), WAYS[way](lock):
            over.set()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not over.is_set()
    assert not inside()
    over.set()
    holder.join()
    assert elsewhere(lambda: lock.acquire(False) and lock.release() is None)


def test_a_signal_whose_handler_returns_does_not_end_the_wait():
    lock, handled, taken = Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            handled.wait()

    before = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    holder = threading.Thread(target=hold)
    try:
        holder.start()
        taken.wait()
        with Limited(lock, 60) as mine:
            assert mine
            assert handled.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)
    holder.join()


@pytest.mark.parametrize("way", WAYS)
def test_no_code_in_which_a_signal_could_raise_surrounds_the_block(way):
    """Code in Python between the lock and the block could raise with the lock taken."""
    called = []
    entered = WAYS[way](Lock())
    sys.setprofile(lambda frame, event, arg: called.append(frame) if event == "call" else None)
    try:
        with entered:
            assert inside()
    finally:
        sys.setprofile(None)
    handlers = [getattr(signal.getsignal(it), "__code__", None) for it in signal.valid_signals()]
    assert not [frame for frame in called if frame.f_code not in handlers]
    assert not inside()


def test_a_limited_wait():
    lock = Lock()
    with Limited(lock, 0) as mine, Limited(lock, 0) as again:
        assert mine
        assert again
        assert elsewhere(lambda: taken_within(lock, 0.001)) == (False, False)
    assert elsewhere(lambda: taken_within(lock, 0)) == (True, True)
    assert not inside()


def taken_within(lock, seconds):
    with Limited(lock, seconds) as mine:
        return mine, inside()


@pytest.mark.parametrize("held_by", ["the forking thread", "another thread"])
def test_a_fork_releases_what_other_threads_held(held_by):
    taken, over = threading.Event(), threading.Event()

    def hold():
        with guard:
            taken.set()
            over.wait()

    holder = threading.Thread(target=hold)
    if held_by == "another thread":
        holder.start()
        taken.wait()
    else:
        guard.acquire()
    if not (child := os.fork()):
        os._exit(7 if guard.acquire(False) else 8)
    if held_by == "another thread":
        over.set()
        holder.join()
    else:
        guard.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


# ---- calls of a thread that may not wait ----


WAITS = {
    "recv": lambda peer: peer.recv(),
    "recv with a limit": lambda peer: peer.recv(timeout=60),
    "probe": lambda peer: peer.probe(),
    "mprobe": lambda peer: peer.mprobe(),
    "wait": lambda peer: peer.irecv().wait(),
    "wait_all": lambda peer: _binding.wait_all([peer.irecv()]),
    "wait_any": lambda peer: _binding.wait_any([peer.irecv()]),
}


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("state", [NoWaiting, Lock])
def test_a_call_that_would_wait_raises(loop_pair, name, state):
    with state(), pytest.raises(RuntimeError, match="use a call that does not wait"):
        WAITS[name](loop_pair.left)


def test_calls_that_need_not_wait_work(pair):
    with guard:
        posted = pair.left.irecv(tag=9)
        sent = [pair.left.isend(b"x", tag=1), pair.left.isend([b"y", b"z"], tag=2)]
        assert not posted.test()
        with pytest.raises(TimeoutError):
            posted.wait(timeout=0)
        assert posted.cancel()
    assert pair.right.recv(tag=1) == b"x"
    assert pair.right.recv(tag=2) == b"yz"
    _binding.wait_all(sent)


HARVESTS = {
    "done": lambda request: request.done(),
    "test": lambda request: request.test(),
    "cancel": lambda request: request.cancel(),
    "wait": lambda request: request.wait(),
    "wait_any": lambda request: _binding.wait_any([request]),
    "add_done_callback": lambda request: request.add_done_callback(lambda _: None),
}


@pytest.mark.parametrize("name", HARVESTS)
def test_call_backs_run_outside_whoever_completes_the_request(loop_pair, name):
    """Within a Lock they could take another one, whose holder waits for this one."""
    called = []
    request = loop_pair.right.irecv()
    request.add_done_callback(lambda _: called.append(inside()))
    loop_pair.left.send(b"x")
    with guard:  # progress delivers nothing
        while not loop_pair.left._worker.pending:
            loop_pair.left._worker.progress()
        HARVESTS[name](request)
        assert request._finished
        assert called == []
        request.add_done_callback(lambda _: called.append(inside()))
    assert called == [False, False]


def test_ctrl_c_is_raised_after_a_call_that_was_put_off():
    """The call has nobody to tell of it."""
    called = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), guard:
            when_outside(_thread.interrupt_main)
            when_outside(lambda: called.append("made"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert called == ["made"]


def test_call_backs_wait_until_the_thread_may(pair):
    called = []
    request, worker = pair.left.irecv(tag=1), pair.left._worker
    request.add_done_callback(lambda _: called.append(may_wait()))
    pair.right.send(b"x", tag=1)
    with guard:
        while not worker.pending:
            worker.progress()
        pair.left.isend(b"y", tag=2)
        assert called == []
    worker.progress()
    assert called == [True]
    assert request.result() == b"x"
    assert pair.right.recv(tag=2) == b"y"
