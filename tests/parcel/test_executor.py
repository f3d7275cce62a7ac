"""Executors over ranks, and many actions between several ranks."""

from __future__ import annotations

import concurrent.futures
import gc
import math
import os
import pickle
import random
import threading
import time
import weakref
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pscompy
from pscompy.api.c.guard import guard
from tests import waiting

SHM, TCP = {"PSP_TCP": "0"}, {"PSP_SHM": "0"}
over = pytest.mark.parametrize("variables", [SHM, TCP], ids=["shm", "tcp"])

# The number of actions of test_many; 100000 take less than a minute.
ACTIONS = int(os.environ.get("PSCOMPY_TEST_ACTIONS", "1000"))


@over
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_map_and_submit(run, script, ranks, variables):
    def maps_and_submits():
        released = threading.Event()

        @pscompy.action
        def power(base, exponent=2):
            return base**exponent

        @pscompy.action
        def rank_of():
            assert released.wait(60)
            return world.rank

        @pscompy.action(inline=True)
        def release():
            released.set()

        with pscompy.World() as world:
            with pscompy.Executor(world) as executor:
                if executor is not None:
                    print(list(executor.map(power, range(5))))
                    print(
                        list(executor.map(power, range(50), [3] * 60, chunksize=7))
                        == [n**3 for n in range(50)]
                    )
                    print(executor.submit(power, 2, exponent=10).result())
                    others = range(1, world.size) or [0]
                    futures = [executor.submit(rank_of) for _ in others]  # the idlest comes next
                    for rank in others:
                        world.call(rank, release)
                    print({future.result() for future in futures} == set(others))
            print("past")

    printed = run.lines(ranks, script(maps_and_submits), **variables)
    assert printed == sorted(["[0, 1, 4, 9, 16]", "True", "1024", "True", *["past"] * ranks])


def test_as_concurrent_futures_has_it(run, script):
    def uses_futures():
        @pscompy.action
        def fails(n):
            if n == 3:
                raise ValueError(n)
            return n

        @pscompy.action
        def waits(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end and not pscompy.current_action().cancelled:
                pass
            return pscompy.current_action().cancelled

        with pscompy.World() as world:
            with pscompy.Executor(world) as executor:
                if executor is not None:
                    assert isinstance(executor, concurrent.futures.Executor)
                    results = executor.map(fails, range(6), chunksize=2)
                    print([next(results) for _ in range(2)])
                    try:
                        list(results)
                    except ValueError as error:
                        print("raised", error)
                    try:
                        executor.submit(math.sqrt, 2).result()
                    except pscompy.Unsupported as error:
                        print("registered" in str(error) or "register" in str(error))
                    try:
                        executor.submit(fails, threading.Lock()).result()
                    except TypeError:
                        print("TypeError")
                    try:
                        next(executor.map(waits, [20], timeout=0.05))
                    except concurrent.futures.TimeoutError:
                        print("TimeoutError")
                    futures = [executor.submit(waits, 60) for _ in range(40)]
                    print(sum(future.cancel() for future in futures))
                    print(executor.submit(fails, 1).result(60))
                    last = executor.submit(fails, 5)
                    executor.shutdown(wait=False)
                    print(last.result(60))
                    try:
                        executor.submit(fails, 1)
                    except RuntimeError as error:
                        print(error)

    assert run.lines(3, script(uses_futures), PSP_PARCEL_THREADS="2") == sorted(
        [
            *("[0, 1]", "raised 3", "True", "TypeError", "TimeoutError", "40", "1", "5"),
            "cannot submit anything after shutdown",
        ]
    )


GO = threading.Event()


@pscompy.action
def wait():
    assert GO.wait(60)


@pscompy.action(inline=True)
def let_go():
    GO.set()


def test_shutdown_that_cancels(run, script):
    def cancels_at_its_end():
        with pscompy.World() as world:
            executor = pscompy.Executor(world)
            if world.rank == 0:
                futures = [executor.submit(wait) for _ in range(20)]
                executor.shutdown(wait=False, cancel_futures=True)
                world.call(1, let_go)
                executor.shutdown()
                print(all(future.done() for future in futures), futures[-1].cancelled())

    assert run.lines(2, script(cancels_at_its_end), PSP_PARCEL_THREADS="1") == ["True True"]


def test_shutdown_after_tasks_were_cancelled_at_any_moment(run, script):
    """Every task is counted once when it ends, whether its result or its cancellation is first."""

    def cancels_some():
        @pscompy.action
        def nothing():
            pass

        with pscompy.World() as world:
            executor = pscompy.Executor(world)
            if world.rank == 0:
                for moment in range(200):
                    tasks = [executor.submit(nothing) for _ in range(moment)]
                    cancelled = [task.cancel() for task in tasks[::2]]
                    assert cancelled == [task.cancelled() for task in tasks[::2]]
                    [task.result(60) for task in tasks[1::2]]
                executor.shutdown()
                print(executor._open)

    assert run.lines(3, script(cancels_some)) == ["0"]


def test_shutdown_after_the_program_has_completed_tasks_itself(run, script):
    def completes_some():
        with pscompy.World() as world:
            executor = pscompy.Executor(world)
            if world.rank == 0:
                tasks = [executor.submit(wait) for _ in range(20)]
                for task in tasks[::2]:
                    task.set_result("mine")
                world.call(1, let_go)
                executor.shutdown()
                print(executor._open, *(task.result(60) for task in tasks[:2]))

    printed = run.lines(2, script(completes_some), PSP_PARCEL_THREADS="1")
    assert printed == ["0 mine None"]


def test_an_action_that_has_lost_a_third_rank(run, script):
    """The rank that ran the action is there and runs the next ones."""

    def raises_peer_lost():
        @pscompy.action
        def fails():
            raise pscompy.PeerLost("rank 7 has ended")

        @pscompy.action
        def rank_of():
            return world.rank

        with pscompy.World() as world, pscompy.Executor(world) as executor:
            if executor is not None:
                print(executor.submit(fails).exception(60))
                print(executor.submit(rank_of).result(60))

    printed = run.lines(2, script(raises_peer_lost))
    assert printed == sorted(["rank 7 has ended", "1"])


def test_a_call_goes_to_the_rank_that_has_fewer(run, script):
    def submits_one():
        @pscompy.action
        def rank_of():
            return world.rank

        with pscompy.World() as world, pscompy.Executor(world) as executor:
            if executor is not None:
                executor._ranks[0].open += 100
                executor._ranks[1].size = 8
                print(executor.submit(rank_of).result(60))
                executor._ranks[0].open -= 100

    assert run.lines(3, script(submits_one)) == ["2"]


@pytest.mark.parametrize("chunksize", [1, 7])
def test_map_cancels_the_calls_that_are_not_wanted_any_more(run, script, chunksize):
    def stops_early(chunksize):
        @pscompy.action
        def waits(first):
            while not first and not pscompy.current_action().cancelled:
                time.sleep(0.001)
            return first

        with pscompy.World() as world, pscompy.Executor(world) as executor:
            if executor is not None:
                wanted = [True] * chunksize + [False] * 100
                results = executor.map(waits, wanted, chunksize=chunksize)
                print(next(results))
                results.close()
                print(list(results), executor.submit(waits, True).result(60))

    assert run.lines(2, script(stops_early, chunksize)) == ["True", "[] True"]


def test_a_cancelled_chunk_begins_no_more_items(run, script):
    def stops_within_a_chunk():
        begun = []

        @pscompy.action
        def item(number):
            begun.append(number)
            while number == 5 and not pscompy.current_action().cancelled:
                time.sleep(0.001)
            return number

        @pscompy.action(inline=True)
        def begun_now():
            return begun

        @pscompy.action
        def begun_at_the_end():  # runs after the chunk, in the same thread
            return begun

        with pscompy.World() as world, pscompy.Executor(world) as executor:
            if executor is not None:
                results = executor.map(item, range(10), chunksize=5)
                print(next(results))
                waiting.expect_soon(lambda: 5 in world.call(1, begun_now))
                del results  # cancels the chunks that are left
                print(executor.submit(begun_at_the_end).result(60))

    printed = run.lines(2, script(stops_within_a_chunk), PSP_PARCEL_THREADS="1")
    assert printed == ["0", str(list(range(6)))]


def test_map_begins_before_its_iterable_ends(run, script):
    def waits_for_the_first_call():
        begun = threading.Event()

        @pscompy.action
        def begin(number):
            world.submit(0, note)
            return number

        @pscompy.action(inline=True)
        def note():
            begun.set()

        def numbers():
            yield 1
            assert begun.wait(60)
            yield 2

        with pscompy.World() as world, pscompy.Executor(world) as executor:
            if executor is not None:
                print(list(executor.map(begin, numbers())))

    assert run.lines(2, script(waits_for_the_first_call)) == ["[1, 2]"]


def test_a_task_is_freed_with_its_last_reference(run, script):
    """Not by the collector: with thousands of tasks it would run again and again."""

    def drops_tasks():
        @pscompy.action
        def nothing():
            pass

        with pscompy.World() as world:
            with pscompy.Executor(world) as executor:
                if executor is not None:
                    gc.collect()
                    gc.disable()
                    tasks = [executor.submit(nothing) for _ in range(20)]
                    concurrent.futures.wait(tasks)
                    dropped = [weakref.ref(task) for task in tasks]
                    del tasks
                    waiting.expect_soon(lambda: not any(task() for task in dropped))
                    print("freed")

    assert run.lines(2, script(drops_tasks)) == ["freed"]


def test_serve_without_an_executor(run, script):
    """Each rank calls actions on all others, also from within actions."""

    def serves():
        @pscompy.action
        def total(numbers):
            return float(numbers.sum())

        @pscompy.action
        def pass_on(rank, count):
            return world.call(rank, total, np.ones(count))

        with pscompy.World() as world:
            results = [
                world.submit(rank, pass_on, (rank + 1) % world.size, 10 ** (rank + 1))
                for rank in range(world.size)
            ]
            print([result.result(60) for result in results])
            world.serve(timeout=60)

    assert run.lines(3, script(serves), PSP_PARCEL_THREADS="4") == ["[10.0, 100.0, 1000.0]"] * 3


@pscompy.action
def work(field, fail):
    if fail:
        raise ValueError(len(field))
    return field[: len(field) // 2]


@pscompy.action(inline=True)
def negate(n):
    return -n


class Caller:
    """Calls of random kinds and sizes to random ranks, and counts of their ends."""

    def __init__(self, world):
        self.world = world
        self.dice = random.Random(world.rank)
        self.ended, self.counts, self.lock = Counter(), Counter(), threading.Lock()

    def call(self, numbers):
        pending = []
        for number in numbers:
            pending.append(self.begin(number))
            if len(pending) > 40:
                finish(pending.pop(0))
        for future in pending:
            finish(future)

    def begin(self, number):
        rank = self.dice.randrange(self.world.size)
        kind = self.dice.choice(("work", "work", "work", "fail", "negate"))
        size = int(10 ** self.dice.uniform(0, 4.8))
        if kind == "negate":
            future = self.world.submit(rank, negate, size)
        else:
            future = self.world.submit(rank, work, np.zeros(size), kind == "fail")
        future.add_done_callback(lambda future: self.count(number, kind, size, future))
        if self.dice.random() < 0.15:
            future.cancel()
        return future

    def count(self, number, kind, size, future):
        if future.cancelled():
            kind = "cancelled"
        elif kind == "fail":
            assert isinstance(future.exception(), ValueError), future.exception()
            assert future.exception().args == (size,)
        elif kind == "negate":
            assert future.result() == -size
        else:
            assert len(future.result()) == size // 2
        with self.lock:
            self.ended[number] += 1
            self.counts[kind] += 1


def finish(future):
    if not future.cancelled():
        future.exception(60)


def resident():
    """Memory of this process, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def calls_many(total):
    with pscompy.World() as world:
        caller, share = Caller(world), total // world.size
        caller.call(range(share // 4))
        before = resident()
        caller.call(range(share // 4, share))
        after = resident()
        world.serve()
        assert caller.ended == dict.fromkeys(range(share), 1)
        assert sum(caller.counts.values()) == share, caller.counts
        assert all(caller.counts[kind] for kind in ("work", "fail", "negate")), caller.counts
        assert after - before < 48, (before, after)
        print("good")


@pytest.mark.parametrize("variables", [{}, SHM, TCP], ids=["any", "shm", "tcp"])
def test_many(run, script, variables):
    """4 processes call each other with data of all sizes, exceptions and cancellations: every
    future is completed exactly once, and memory does not grow."""
    assert run.lines(4, script(calls_many, ACTIONS), **variables) == ["good"] * 4


def test_a_function_without_a_name_names_the_extra(shm):
    with pytest.raises(pickle.PicklingError, match=r"pscompy\[cloudpickle\].*PARCEL_ACTIONS=any"):
        shm.c.call(lambda: 1)


def test_a_function_without_a_name_in_a_restricted_session(connect):
    with pytest.raises(pickle.PicklingError, match=r"pscompy\[cloudpickle\].*without.*=restricted"):
        connect("shm", PARCEL_UNPICKLE="restricted").c.call(lambda: 1)


def test_a_task_that_is_added_after_the_shutdown_fails():
    """A finalizer submits it in the middle of another call, so it is added later."""
    with pscompy.World() as world:
        executor = pscompy.Executor(world)
        with guard:
            task = executor.submit(os.getpid)
            executor.shutdown(wait=False)
        with pytest.raises(RuntimeError, match="after shutdown"):
            task.result(20)
