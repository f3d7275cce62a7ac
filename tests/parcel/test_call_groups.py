"""Calls of actions that travel together: each behaves as if it had come alone."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pscompy
from pscompy.parcel.action import Registered
from pscompy.parcel.call_group import Batch, Called, CallGroup
from tests import waiting
from tests.jobs import Launcher

Script = Callable[..., Path]


def test_results_do_not_wait_for_a_long_call(run: Launcher, script: Script) -> None:
    def calls_together() -> None:
        go = threading.Event()

        @pscompy.action
        def long() -> str:
            assert go.wait(60)
            return "long"

        @pscompy.action
        def short(number: int) -> int:
            return number

        @pscompy.action(inline=True)
        def let_go() -> None:
            go.set()

        with pscompy.World() as world:
            if world.rank == 0:
                results: queue.Queue[list[tuple[int, object, object]]] = queue.Queue()
                calls = [(long, (), {}), (short, (1,), {}), (short, (2,), {})]
                service, links = world._context.service(), world._action_peer_of(1)
                service.submit_many(links, calls, results.put, results.put)
                early = results.get(timeout=60)
                while len(early) < 2:
                    early += results.get(timeout=60)
                world.call(1, let_go)
                print(sorted(early), results.get(timeout=60))
            world.serve()

    expected = [(1, 1, None), (2, 2, None)], [(0, "long", None)]
    printed = run.lines(2, script(calls_together), PSP_PARCEL_THREADS="2")
    assert printed == [" ".join(str(one) for one in expected)]


def test_the_next_call_is_spread_although_the_first_has_begun_at_once() -> None:
    begun, go = threading.Event(), threading.Event()
    spread: list[Callable[[], object]] = []
    threads: list[threading.Thread] = []

    def waits() -> None:
        begun.set()
        assert go.wait(60)

    def put(work: Callable[[], object]) -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()
        assert begun.wait(60)

    answers: Any = SimpleNamespace(take_apart=lambda value: b"")
    made = Registered(waits, "waits", False)
    group = CallGroup(answers, lambda packed: None, spread.append, lambda: None)
    group.begin([("waits", (), {})] * 2, lambda: Called(None, lambda target: made), put, 2)
    assert len(spread) == 1
    spread[0]()
    assert len(threads) == 2
    go.set()
    for thread in threads:
        thread.join()


def test_a_thread_takes_one_call_of_a_group_after_the_other(run: Launcher, script: Script) -> None:
    def calls_together() -> None:
        @pscompy.action
        def queued() -> int:
            return world._context.service()._threads._work.qsize()

        with pscompy.World() as world:
            if world.rank == 0:
                results: queue.Queue[list[tuple[int, int, object]]] = queue.Queue()
                service, links = world._context.service(), world._action_peer_of(1)
                service.submit_many(links, [(queued, (), {})] * 10, results.put, results.put)
                values: list[int] = []
                while len(values) < 10:
                    values += [value for _, value, _ in results.get(timeout=60)]
                print(values)
            world.serve()

    printed = run.lines(2, script(calls_together), PSP_PARCEL_THREADS="1")
    assert printed == [str([0] * 10)]


def test_an_interrupted_call_leaves_the_others_to_other_threads(
    run: Launcher, script: Script
) -> None:
    def interrupts() -> None:
        @pscompy.action
        def interrupted() -> None:
            raise KeyboardInterrupt

        @pscompy.action
        def on_main_thread() -> bool:
            return threading.current_thread() is threading.main_thread()

        def report_help() -> None:
            waiting.expect_soon(lambda: service._threads._helped, "rank 1 serves")
            world.send_obj(None, 0)

        with pscompy.World() as world:
            service = world._context.service()
            if world.rank == 0:
                results: queue.Queue[list[tuple[int, object, object]]] = queue.Queue()
                links = world._action_peer_of(1)
                world.recv_obj(1)
                calls = [(interrupted, (), {}), *[(on_main_thread, (), {})] * 3]
                service.submit_many(links, calls, results.put, results.put)
                values: dict[int, object] = {}
                while len(values) < 4:
                    values |= {index: value for index, value, _ in results.get(timeout=60)}
                print([values[index] for index in range(4)])
            else:
                threading.Thread(target=report_help).start()
                try:
                    world.serve()
                except KeyboardInterrupt:
                    print("interrupted")

    printed = run.lines(2, script(interrupts), PSP_PARCEL_THREADS="1")
    assert printed == sorted(["interrupted", "[None, False, False, False]"])


def test_each_call_fails_by_itself(run: Launcher, script: Script) -> None:
    def fails_together() -> None:
        @pscompy.action
        def raises() -> None:
            raise ValueError("on purpose")

        @pscompy.action
        def gives_a_lock() -> object:
            return threading.Lock()

        @pscompy.action
        def works() -> str:
            return "works"

        class Unreadable:
            def __reduce__(self) -> tuple[object, ...]:
                return int, ("no number",)

        def run_all(*calls: tuple[object, ...]) -> list[str]:
            results: queue.Queue[object] = queue.Queue()
            service, links = world._context.service(), world._action_peer_of(1)
            service.submit_many(
                links, [(call[0], call[1:], {}) for call in calls], results.put, results.put
            )
            parts: list[object] = []
            while len(parts) < len(calls):
                given = results.get(timeout=60)
                if not isinstance(given, list):
                    return [f"refused: {type(given).__name__}"]
                parts += given
            return [f"{value} {type(error).__name__}" for _, value, error in sorted(parts, key=str)]

        with pscompy.World() as world:
            if world.rank == 0:
                print(run_all((raises,), (gives_a_lock,), (works,), (print, 1)))
                print(run_all((works,), (works, Unreadable())))
            world.serve()

    failed = ["None ValueError", "None ParcelError", "works NoneType", "None Unsupported"]
    assert run.lines(2, script(fails_together)) == sorted([str(failed), "['refused: ParcelError']"])


def test_one_call_of_several_is_cancelled(run: Launcher, script: Script) -> None:
    def cancels_one() -> None:
        running = threading.Semaphore(0)

        @pscompy.action
        def waits() -> str:
            running.release()
            action = pscompy.current_action()
            while not action.cancelled and not ended.is_set():
                ended.wait(0.01)
            return "cancelled" if action.cancelled else "ended"

        @pscompy.action(inline=True)
        def end() -> None:
            ended.set()

        @pscompy.action
        def both_run() -> bool:
            return all(running.acquire(timeout=60) for _ in range(2))

        ended = threading.Event()
        with pscompy.World() as world:
            if world.rank == 0:
                results: queue.Queue[list[object]] = queue.Queue()
                service, links = world._context.service(), world._action_peer_of(1)
                calls = [(waits, (), {}), (waits, (), {})]
                number = service.submit_many(links, calls, results.put, results.put)
                assert world.call(1, both_run)
                service.withdraw(links, number, 1)
                print(results.get(timeout=60))
                world.call(1, end)
                print(results.get(timeout=60))
            world.serve()

    printed = run.lines(2, script(cancels_one), PSP_PARCEL_THREADS="3")
    assert printed == ["[(0, 'ended', None)]", "[(1, 'cancelled', None)]"]


def test_an_argument_that_cannot_be_restored_fails_its_own_call(
    run: Launcher, script: Script
) -> None:
    def submits_together() -> None:
        go = threading.Event()

        @pscompy.action
        def waits() -> None:
            assert go.wait(60)

        @pscompy.action
        def takes(number: object) -> object:
            return number

        @pscompy.action(inline=True)
        def let_go() -> None:
            go.set()

        class Unreadable:
            def __reduce__(self) -> tuple[object, ...]:
                return int, ("no number",)

        with pscompy.World() as world, pscompy.Executor(world) as executor:
            if executor is not None:
                first = [executor.submit(waits) for _ in range(2)]
                futures = [executor.submit(takes, it) for it in (1, Unreadable(), 3, 4)]
                executor._ranks[0].size = 4  # the submitted calls wait, and one message takes all
                world.call(1, let_go)
                for future in first:
                    future.result(60)
                for future in futures:
                    error = future.exception(60)
                    print(type(error).__name__ if error else future.result())

    printed = run.lines(2, script(submits_together), PSP_PARCEL_THREADS="1")
    assert printed == sorted(["1", "ParcelError", "3", "4"])


@pytest.mark.parametrize(
    "part",
    [
        ([0.0], ["x"], []),
        ([[]], ["x"], []),
        ([True], ["x"], []),
        ([], [], [0]),
        ([], [], [(0.0, 1)]),
    ],
)
def test_an_answer_without_integers_as_indexes_is_refused(part: Any) -> None:
    batch = Batch(2, lambda results, lost: pytest.fail("reported"), pytest.fail)
    with pytest.raises(pscompy.ProtocolError):
        batch.take(part, SimpleNamespace())
    assert not batch.done()


@pytest.mark.parametrize(
    "part",
    [
        ([0], ["y"], []),  # answered before
        ([2], ["y"], []),  # never called
        ([-1], ["y"], []),
        ([1, 1], ["y", "y"], []),
        ([1], [], []),
        ([], ["y"], []),
    ],
)
def test_an_answer_of_a_call_that_does_not_wait_is_refused(part: Any) -> None:
    reported: list[Any] = []
    batch = Batch(2, lambda results, lost: reported.extend(results), pytest.fail)
    batch.take(([0], ["x"], []), SimpleNamespace())
    with pytest.raises(pscompy.ProtocolError):
        batch.take(part, SimpleNamespace())
    assert reported == [(0, "x", None)]
    assert not batch.done()
