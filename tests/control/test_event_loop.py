"""The control thread: an exception in a call-back does not end it, and each kind is logged once."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pscompy.control.event_loop import READ, ControlThread
from pscompy.control.sibling import SiblingThread
from pscompy.errors import Closed
from tests.program import program
from tests.waiting import expect_soon


@pytest.fixture
def thread() -> Iterator[ControlThread]:
    made = ControlThread("a test")
    made.start()
    yield made
    assert made.stop(60)


@pytest.fixture
def _failures_are_wanted(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Clears the log, because these tests provoke the errors that it contains."""
    yield
    for when in ("setup", "call"):
        caplog.get_records(when).clear()


def works(thread: ControlThread) -> bool:
    done = threading.Event()
    thread.call(done.set)
    return done.wait(60)


@pytest.mark.usefixtures("_failures_are_wanted")
@pytest.mark.parametrize("kind", [OSError, ValueError, MemoryError, SystemExit, KeyboardInterrupt])
def test_nothing_that_a_call_back_raises_ends_the_thread(
    thread: ControlThread, kind: type[BaseException]
) -> None:
    def fails(*_: object) -> None:
        raise kind("on purpose")

    thread.call(fails)
    thread.call(thread.later, 0, fails)
    assert works(thread)
    reading, writing = os.pipe()
    thread.call(thread.register, reading, READ, fails)
    os.write(writing, b"x")
    assert works(thread)
    thread.call(thread.unregister, reading)
    assert works(thread)
    os.close(reading)
    os.close(writing)


def test_no_call_is_missed_of_many_threads(thread: ControlThread) -> None:
    """A thread that is awake is not signalled again."""
    done: list[int] = []

    def calls() -> None:
        for number in range(1000):
            thread.call(done.append, number)

    callers = [threading.Thread(target=calls) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert works(thread)
    assert sorted(done) == sorted([*range(1000)] * 4)


def test_a_busy_thread_is_signalled_once(
    thread: ControlThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []
    write = os.eventfd_write
    blocked, going_on = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        assert going_on.wait(60)

    def signalled(fd: int, value: int) -> None:
        signals.append(value)
        write(fd, value)

    thread.call(block)
    assert blocked.wait(60)
    monkeypatch.setattr(os, "eventfd_write", signalled)
    for _ in range(10):
        thread.call(int)
    going_on.set()
    assert works(thread)
    assert len(signals) <= 2  # one while it was blocked, one for the last call


def test_an_interrupted_call_does_not_silence_later_ones(
    thread: ControlThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(fd: int, value: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.call(int)
    assert works(thread)


@pytest.mark.usefixtures("_failures_are_wanted")
def test_a_pump_that_fails_keeps_nothing_from_being_looked_at(thread: ControlThread) -> None:
    failed = threading.Event()

    def fails() -> bool:
        failed.set()
        raise OSError("on purpose")

    thread.call(thread.add_pump, fails)
    assert failed.wait(60)
    assert works(thread)


@pytest.mark.usefixtures("_failures_are_wanted")
def test_an_event_that_stays_is_told_once(
    thread: ControlThread, caplog: pytest.LogCaptureFixture
) -> None:
    times = []

    def fails(*_: object) -> None:
        times.append(None)
        raise OSError("on purpose")

    reading, writing = os.pipe()
    os.write(writing, b"x")
    with caplog.at_level(logging.ERROR, "pscompy"):
        thread.call(thread.register, reading, READ, fails)
        expect_soon(lambda: len(times) > 10)
        thread.call(thread.unregister, reading)
        assert works(thread)
    assert len([record for record in caplog.records if record.exc_info]) == 1
    os.close(reading)
    os.close(writing)


def log_without_descriptors() -> None:
    import logging
    import resource

    import pscompy

    session = pscompy.Session(config={"KEY": "random:" + "a1" * 32})
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    log = logging.getLogger("pscompy.test")
    try:
        raise ValueError("a cause")
    except ValueError:
        log.exception("%d things of %s", 3, type(session).__name__)


def test_a_line_of_the_log_needs_no_descriptor() -> None:
    command = [sys.executable, "-c", program(log_without_descriptors)]
    done = subprocess.run(command, capture_output=True, text=True)
    first, *_, last = done.stderr.splitlines()
    assert done.returncode == 0
    assert first.endswith("error: 3 things of Session")
    assert last == "ValueError: a cause"


def test_a_call_after_the_end_writes_into_no_descriptor() -> None:
    """Another file may have the number by then."""
    ended = ControlThread("a test")
    ended.start()
    number = ended._wake
    assert ended.stop(60)
    reused = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        if reused != number:
            os.dup2(reused, number, inheritable=False)
        ended.call(int)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(reused)
    finally:
        os.close(reused)
        if reused != number:
            os.close(number)


# ---- siblings of the thread, which end without it ----


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    made = os.pipe()
    yield made
    for descriptor in made:
        os.close(descriptor)


def test_a_sibling_is_served_by_the_thread(thread: ControlThread, pipe: tuple[int, int]) -> None:
    sibling, came = SiblingThread(thread), []
    pumped, timed = threading.Event(), threading.Event()
    sibling.start(
        lambda: sibling.register(pipe[0], READ, lambda _: came.append(os.read(pipe[0], 1)))
    )
    sibling.run(sibling.add_pump, lambda: bool(pumped.set() or True))
    sibling.run(sibling.later, 0, timed.set)
    os.write(pipe[1], b"x")
    expect_soon(lambda: came == [b"x"])
    assert pumped.wait(60)
    assert timed.wait(60)
    assert sibling.stop(60)


def test_nothing_is_called_after_its_end(thread: ControlThread, pipe: tuple[int, int]) -> None:
    sibling: SiblingThread = SiblingThread(thread)
    called: list[str] = []
    sibling.start(lambda: sibling.register(pipe[0], READ, lambda _: called.append("descriptor")))
    sibling.run(sibling.add_pump, lambda: bool(called.append("pump") or True))
    sibling.run(sibling.later, 0.05, called.append, "timer")
    assert sibling.stop(60)
    before = list(called)
    os.write(pipe[1], b"x")
    sibling.call(called.append, "call")
    sibling.run(called.append, "run")
    passed = threading.Event()
    thread.call(thread.later, 0.1, passed.set)
    assert passed.wait(60)
    assert called == before
    thread.run(thread.register, pipe[0], READ, lambda _: called.append("another's"))
    expect_soon(lambda: "another's" in called)
    thread.run(thread.unregister, pipe[0])


def test_a_sibling_that_cannot_begin_raises_in_its_starter(
    thread: ControlThread, pipe: tuple[int, int]
) -> None:
    sibling = SiblingThread(thread)

    def fails() -> None:
        sibling.register(pipe[0], READ, lambda _: None)
        raise OSError("on purpose")

    with pytest.raises(OSError, match="on purpose"):
        sibling.start(fails)
    assert sibling.stop(60)
    thread.run(thread.register, pipe[0], READ, lambda _: None)  # not registered any more
    thread.run(thread.unregister, pipe[0])


def test_a_sibling_whose_thread_ends_meanwhile_is_refused(thread: ControlThread) -> None:
    thread.call(thread._stop)  # as `stop` begins
    thread._thread.join(60)
    with pytest.raises(Closed):
        SiblingThread(thread).start()


def test_siblings_of_one_thread_end_apart(thread: ControlThread) -> None:
    first, second = SiblingThread(thread), SiblingThread(SiblingThread(thread))
    pumped = threading.Event()
    second.run(second.add_pump, lambda: bool(pumped.set() or True))
    assert first.stop(60)
    pumped.clear()
    thread.call(int)
    assert pumped.wait(60)
    assert second.stop(60)
