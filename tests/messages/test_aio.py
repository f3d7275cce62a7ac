"""Awaiting requests in asyncio."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable

import pytest

import pscompy
from pscompy.api import aio
from tests.messages.conftest import Pair
from tests.waiting import idles

BIG = 2_000_000


def test_await(pair: Pair) -> None:
    async def main() -> None:
        receive = pair.right.irecv()
        sent = pair.left.isend(b"a" * BIG)
        assert await asyncio.wait_for(asyncio.gather(sent, receive), 60) == [None, b"a" * BIG]
        assert await receive is receive.result()

    asyncio.run(main())


def test_a_completed_request_does_not_suspend(loop_pair: Pair) -> None:
    receive = loop_pair.right.irecv()
    loop_pair.wait(loop_pair.left.isend(b"x"), receive)

    async def main() -> bytes:
        result: bytes = await receive
        return result

    coroutine = main()
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    assert stopped.value.value == b"x"


def test_errors(pair: Pair) -> None:
    async def main() -> None:
        receive = pair.right.irecv(bytearray(1))
        pair.left.isend(b"too long")
        for _ in range(2):
            with pytest.raises(pscompy.Truncated):
                assert bytes(await asyncio.wait_for(asyncio.ensure_future(receive), 60)) == b"x"

    asyncio.run(main())


def test_ping_pong(make: Callable[..., Pair]) -> None:
    """The event loop sleeps thousands of times; one lost wake-up would stop the exchange."""
    pair = make("shm")

    async def echo(count: int) -> None:
        for _ in range(count):
            message = await pair.right.irecv()
            await pair.right.isend(message)

    async def main(count: int) -> None:
        other = asyncio.create_task(echo(count))
        for i in range(count):
            await pair.left.isend(i.to_bytes(4, "little"))
            assert int.from_bytes(await pair.left.irecv(), "little") == i
        await other

    asyncio.run(asyncio.wait_for(main(2000), 60))


def test_a_message_while_nothing_is_awaited(make: Callable[..., Pair]) -> None:
    """The loop stops watching the descriptor when nothing is awaited, and watches it again
    later."""
    pair = make("shm")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(20):
            loop.call_later(0.01, pair.left.send, b"awaited")
            assert await asyncio.wait_for(asyncio.ensure_future(pair.right.irecv()), 60)
            pair.left.send(b"not awaited")
            await asyncio.sleep(0.01)
            assert await pair.right.irecv() == b"not awaited"

    asyncio.run(main())


async def some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_who_awaits_all_the_time_lets_others_run(make: Callable[..., Pair]) -> None:
    """Messages arrive so fast that no await has to suspend; other tasks run all the same."""
    pair = make("shm")

    def echo() -> None:
        while message := pair.right.recv():
            pair.right.send(message)

    async def main() -> None:
        others = asyncio.create_task(some_turns())
        until = time.monotonic() + 60
        while not others.done():
            await pair.left.isend(b"x")
            assert await pair.left.irecv() == b"x"
            assert time.monotonic() < until

    thread = threading.Thread(target=echo)
    thread.start()
    try:
        asyncio.run(main())
    finally:
        pair.left.send(b"")
        thread.join()


def test_who_awaits_what_has_ended_lets_others_run(loop_pair: Pair) -> None:
    async def main() -> None:
        others = asyncio.create_task(some_turns())
        receive = loop_pair.right.irecv()
        loop_pair.wait(loop_pair.left.isend(b"x"), receive)
        until = time.monotonic() + 60
        while not others.done():
            assert await receive == b"x"
            assert time.monotonic() < until

    asyncio.run(main())


def test_a_loop_that_waits_sleeps(make: Callable[..., Pair]) -> None:
    pair = make("shm")

    async def used() -> float:
        timer = threading.Timer(1.0, lambda: pair.left.send(b"wake up"))
        timer.start()
        before = time.process_time()
        assert await pair.right.irecv() == b"wake up"
        timer.join()
        return time.process_time() - before

    assert idles(lambda: asyncio.run(used()), 0.3)


def test_a_loop_and_a_blocked_thread_let_each_other_sleep(
    make: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread and an event loop sleep on one worker; the thread must not wake the loop without
    need."""
    pair = make("shm")
    looks = []
    look = aio.Reader._look

    def counted(self: aio.Reader) -> None:
        looks.append(self)
        look(self)

    monkeypatch.setattr(aio.Reader, "_look", counted)
    thread = threading.Thread(target=pair.right.recv, kwargs={"tag": 1})

    async def main() -> None:
        receive = asyncio.ensure_future(pair.right.irecv(tag=2))
        await asyncio.sleep(0.1)
        looks.clear()
        begun = time.monotonic()
        await asyncio.sleep(1)
        assert len(looks) < 100 * (time.monotonic() - begun)
        pair.left.send(b"", 2)
        await asyncio.wait_for(receive, 60)

    thread.start()
    asyncio.run(main())
    pair.left.send(b"", 1)
    thread.join()


def test_others_who_poll_do_not_steal_the_wake_up(make: Callable[..., Pair]) -> None:
    """A thread blocks on the session while the loop sleeps, many times. A lost wake-up would
    last until the end of a slice of sleep, and the test would take minutes."""
    pair = make("shm")
    rounds = 1000

    def blocked() -> None:
        for _ in range(rounds):
            pair.right.recv(tag=1)
            pair.left.send(b"for the loop", 2)

    async def main() -> None:
        thread = threading.Thread(target=blocked)
        thread.start()
        for _ in range(rounds):
            receive = pair.right.irecv(tag=2)
            pair.left.send(b"for the thread", 1)
            assert bytes(await receive) == b"for the loop"
        thread.join()

    asyncio.run(asyncio.wait_for(main(), 200))


def test_who_polls_once_and_goes_away_does_not_steal_the_wake_up(make: Callable[..., Pair]) -> None:
    """Another thread polls at any moment while the loop is about to sleep, and then a message
    arrives. Without a notification for each message the loop would sleep on beside some of them."""
    pair = make("shm", SPIN_US=0)
    rounds = 5000
    begun = threading.Semaphore(0)

    def poll_and_send() -> None:
        for i in range(rounds):
            begun.acquire()
            sum(range(i % 100))
            pair.right.iprobe(tag=1)
            pair.left.send(b"x", 2)

    async def main() -> None:
        for _ in range(rounds):
            receive = pair.right.irecv(tag=2)
            begun.release()
            assert bytes(await asyncio.wait_for(asyncio.ensure_future(receive), 60)) == b"x"

    thread = threading.Thread(target=poll_and_send)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        asyncio.run(main())
    finally:
        sys.setswitchinterval(interval)
        begun.release(rounds)  # also after a failure, so that the thread ends
        thread.join()


def test_several_tasks_await_one_request(pair: Pair) -> None:
    async def main() -> None:
        receive = pair.right.irecv()

        async def wait() -> bytes:
            result: bytes = await receive
            return result

        tasks = [asyncio.create_task(wait()) for _ in range(5)]
        await asyncio.sleep(0)
        pair.left.isend(b"all")
        assert await asyncio.wait_for(asyncio.gather(*tasks), 60) == [b"all"] * 5

    asyncio.run(main())


def test_events(loop_pair: Pair) -> None:
    """A thread that never polls completes the event."""
    worker = loop_pair.sides[0].worker

    async def main() -> None:
        for i in range(50):
            event = worker.event()
            timer = threading.Timer(0.002, event._complete, (i,))
            timer.start()
            assert await asyncio.wait_for(asyncio.ensure_future(event), 60) == i

    asyncio.run(main())


def test_one_loop_after_the_other(pair: Pair) -> None:
    """A loop that is gone leaves no reference and no descriptor."""

    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        receive = pair.right.irecv()
        pair.left.isend(b"x")
        await asyncio.wait_for(asyncio.ensure_future(receive), 60)
        return weakref.ref(asyncio.get_running_loop())

    gone = [asyncio.run(main()) for _ in range(2)]
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    gone += [asyncio.run(main()) for _ in range(5)]
    gc.collect()
    assert [it() for it in gone] == [None] * 7
    # at most the descriptor of listdir itself
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1


def test_a_loop_that_is_closed_while_something_is_awaited(pair: Pair) -> None:
    receive = pair.right.irecv()
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        await receive

    task = loop.create_task(wait())
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    sent = pair.left.isend(b"still received")
    assert pair.wait(sent, receive)[1] == b"still received"
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_loops_in_several_threads(make: Callable[..., Pair]) -> None:
    pair = make("shm")
    done = []

    async def main(tag: int) -> None:
        for _ in range(50):
            receive = pair.right.irecv(tag=tag)
            pair.left.send(b"t", tag)
            await asyncio.wait_for(asyncio.ensure_future(receive), 60)
        done.append(tag)

    threads = [threading.Thread(target=lambda tag=tag: asyncio.run(main(tag))) for tag in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [1, 2, 3]


def test_closing_ends_what_is_awaited(make: Callable[..., Pair]) -> None:
    pair = make("loop")

    async def main() -> None:
        receive = pair.right.irecv()
        asyncio.get_running_loop().call_later(0.01, pair.sides[0].close)
        with pytest.raises(pscompy.Closed):
            await receive
        await some_turns()
        assert not aio._readers[asyncio.get_running_loop()]

    asyncio.run(main())


def test_the_program_may_watch_the_descriptor_itself(make: Callable[..., Pair]) -> None:
    pair = make("shm")
    seen = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        descriptor = pair.sides[1].core.fabric_fd
        loop.add_reader(descriptor, seen.append, 1)
        loop.call_later(0.05, pair.left.send, b"x")
        assert await pair.right.irecv() == b"x"
        loop.remove_reader(descriptor)

    asyncio.run(asyncio.wait_for(main(), 60))
