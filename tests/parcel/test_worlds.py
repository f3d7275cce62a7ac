"""Objects between the ranks of a World."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import pscompy


@pytest.mark.parametrize("variables", [{"PSP_TCP": "0"}, {"PSP_SHM": "0"}], ids=["shm", "tcp"])
def test_from_anybody(run, script, variables):
    """Heads and chunks of several ranks arrive interleaved; each object gets its own."""

    def exchanges():
        with pscompy.World() as world:
            if world.rank:
                for n in range(6):
                    field = np.full(10**n // 2, 10 * world.rank + n)
                    world.send_obj([world.rank, n, field], 0, tag=n)
            else:
                seen = {rank: [] for rank in range(1, world.size)}
                for turn in range(6 * (world.size - 1)):
                    if turn % 3 == 2:
                        rank, n, field = world.recv_obj()
                    elif turn % 3 == 1:
                        request = world.irecv_obj()
                        rank, n, field = request.wait()
                        assert (request.status.source, request.status.tag) == (rank, n)
                    else:
                        status = world.probe_obj()
                        rank, n, field = world.recv_obj(status.source, status.tag)
                    assert np.array_equal(field, np.full(10**n // 2, 10 * rank + n))
                    seen[rank].append(n)
                print(seen)

    order = list(range(6))
    assert run.lines(4, script(exchanges), **variables) == [str({1: order, 2: order, 3: order})]


def test_duplicates_keep_objects_apart(run, script):
    def uses_both():
        with pscompy.World() as world:
            other = world.dup()
            peer = 1 - world.rank
            if world.rank:
                original = world.isend_obj(["original", np.ones(100_000)], peer)
                other.send_obj(["duplicate", np.ones(100_000)], peer)
                original.wait()
            else:
                print(other.recv_obj()[0], world.recv_obj(peer)[0])

    assert run.lines(2, script(uses_both)) == ["duplicate original"]


def test_to_itself(run, script):
    def sends_to_itself():
        with pscompy.World() as world:
            request = world.isend_obj({"field": np.ones(50_000)}, 0)
            print(world.recv_obj()["field"].sum())
            request.wait()
            world.send_obj("short", 0)
            print(world.recv_obj(0, timeout=5))

    assert run.lines(1, script(sends_to_itself)) == ["50000.0", "short"]


def test_ranks_that_are_not_there(run, script):
    def asks_for_others():
        with pscompy.World() as world:
            for call in (lambda: world.send_obj(1, 1), lambda: world.recv_obj(-1)):
                try:
                    call()
                except IndexError as error:
                    print(error)

    assert run.lines(1, script(asks_for_others)) == [
        "no rank -1: there is rank 0 only (pscompy run -n N PROGRAM starts N ranks)",
        "no rank 1: there is rank 0 only (pscompy run -n N PROGRAM starts N ranks)",
    ]


def test_the_main_thread_runs_actions_while_it_serves(run, script):
    def serves():
        import threading

        @pscompy.action
        def thread():
            return threading.current_thread().name

        with pscompy.World() as world:
            if world.rank == 0:
                while world.call(1, thread) != "MainThread":
                    pass
                print("in the main thread")
            world.serve()

    assert run.lines(2, script(serves)) == ["in the main thread"]


def test_an_interrupt_during_an_action_ends_serve(run, script):
    def interrupts():
        import signal
        import threading

        @pscompy.action
        def interrupt():
            if threading.current_thread() is threading.main_thread():
                signal.raise_signal(signal.SIGINT)
            return "again"

        with pscompy.World() as world:
            if world.rank == 0:
                try:
                    while world.call(1, interrupt) == "again":
                        pass
                except pscompy.RemoteError as error:
                    print("KeyboardInterrupt" in str(error))
                world.serve()
            else:
                try:
                    world.serve()
                except KeyboardInterrupt:
                    print("interrupted")

    assert sorted(run.lines(2, script(interrupts))) == ["True", "interrupted"]


def test_serving_goes_on_after_a_timeout(run, script):
    def serves_by_turns():
        @pscompy.action
        def once_more(turn):
            return turn + 1

        with pscompy.World() as world:
            if world.rank == 0:
                print([world.call(1, once_more, turn) for turn in range(3)])
                world.recv(source=1)
                world.serve()
                return
            try:
                world.serve(timeout=0.05)
            except pscompy.Timeout as error:
                print(error)
            world.send(b"", dest=0)
            world.serve()

    assert run.lines(2, script(serves_by_turns)) == ["[1, 2, 3]", "rank 1 has served for 0.05 s"]


def test_serve_waits_for_the_answer_of_an_interrupted_call(run, script):
    def interrupts():
        import os
        import signal
        import threading

        go = threading.Event()

        @pscompy.action
        def interrupt(caller):
            os.kill(caller, signal.SIGINT)
            assert go.wait(60)

        @pscompy.action(inline=True)
        def release():
            go.set()

        with pscompy.World() as world:
            if world.rank == 0:
                try:
                    world.call(1, interrupt, os.getpid())
                except KeyboardInterrupt:
                    print("interrupted")
                world.call(1, release)
            world.serve()
            if world.rank == 0:
                print(world.connection(1)._action_peer().answers.heads.iprobe())

    assert run.lines(2, script(interrupts)) == ["None", "interrupted"]


def test_serve_waits_for_the_call_of_another_thread(run, script):
    def calls_meanwhile():
        import threading

        begun, go = threading.Event(), threading.Event()

        @pscompy.action
        def hold():
            begun.set()
            assert go.wait(60)

        @pscompy.action(inline=True)
        def has_begun():
            return begun.is_set()

        @pscompy.action(inline=True)
        def release():
            go.set()

        with pscompy.World() as world:
            if world.rank == 0:
                caller = threading.Thread(target=world.call, args=(1, hold))
                caller.start()
                while not world.call(1, has_begun):
                    pass
                try:
                    world.serve(timeout=0.05)
                except pscompy.Timeout as error:
                    print(error)
                world.call(1, release)
                caller.join()
            world.serve()

    assert run.lines(2, script(calls_meanwhile)) == ["not all actions have ended"]


def test_communicators_share_the_thread_that_drives_actions(run, script):
    def calls_in_each():
        @pscompy.action
        def double(n):
            return 2 * n

        with pscompy.World() as world:
            duplicates = [world.dup() for _ in range(120)]
            print(sum(each.call(0, double, n) for n, each in enumerate(duplicates)))
            name = f"pscompy actions {world.session.name}"
            print([it.name for it in threading.enumerate()].count(name))

    assert run.lines(1, script(calls_in_each)) == ["1", str(119 * 120)]


def test_an_action_that_raises_stop_iteration(run, script):
    """Neither a generator nor asyncio can raise StopIteration, and `map` would take it for the end
    of its items."""

    def takes_the_first():
        @pscompy.action
        def first(items):
            return next(iter(items))

        async def waits(future):
            await asyncio.wait_for(future, 60)

        with pscompy.World() as world, pscompy.Executor(world) as executor:
            for call in (
                lambda: world.call(0, first, []),
                lambda: asyncio.run(waits(world.submit(0, first, []))),
                lambda: list(executor.map(first, [[1], [], [2]], chunksize=3)),
            ):
                try:
                    call()
                except RuntimeError as error:
                    print(error)

    printed = run.lines(1, script(takes_the_first))
    assert printed == ["the action raised StopIteration"] * 3
