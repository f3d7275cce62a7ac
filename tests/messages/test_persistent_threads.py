"""Persistent requests that are started again while other threads, or call-backs, use them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

import pscompy
from pscompy.api.request import wait_all, wait_any
from tests.messages.conftest import Pair
from tests.program import program

ROUNDS = 50


def start_beside(method: str, rounds: int) -> None:
    """Start a send again and again, while another thread calls a method of its request, and
    others hold the worker's lock most of the time, so that the start waits without the GIL."""
    import contextlib
    import sys
    import threading

    import pscompy

    sys.setswitchinterval(1e-5)
    world = pscompy.World()
    me, stop = world.rank, threading.Event()
    send = world.send_init(b"12345678", dest=me, tag=1)

    def call() -> object:
        if method == "wait_any":
            return pscompy.wait_any([send])
        if method == "wait_all":
            return pscompy.wait_all([send])
        if method == "repr":
            return repr(send)
        if method == "collect":  # the collector looks at the request
            import gc

            return gc.get_referents(send)
        return getattr(send, method)()

    def poll() -> None:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                world.recv(source=me, tag=99, timeout=0.002)

    def receive() -> None:
        buffer = bytearray(8)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                world.recv(buffer, source=me, tag=1, timeout=0.5)

    def watch() -> None:
        while not stop.is_set():
            # RuntimeError: the request was started between the end of the wait and its result
            with contextlib.suppress(RuntimeError, pscompy.Cancelled):
                call()

    threads = [threading.Thread(target=it) for it in (poll, poll, receive, watch)]
    for thread in threads:
        thread.start()
    for _ in range(rounds):
        send.start()
        with contextlib.suppress(pscompy.Cancelled):
            send.wait()
    stop.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    "method",
    ["done", "test", "wait", "cancel", "cancelled", "wait_any", "wait_all", "repr", "collect"],
)
def test_started_while_another_thread_asks(method: str) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", program(start_beside, method, 1000)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert ended.returncode == 0, ended.stderr


def start_in_two_threads() -> None:
    """Start a send in two threads: one is about to hand it to the core, in a call-back of the
    previous start, while the other begins, in a call-back of another request."""
    import contextlib
    import os
    import threading

    import pscompy

    world = pscompy.World()
    me, reached, go = world.rank, threading.Semaphore(0), [threading.Event() for _ in range(3)]

    def stop(number: int) -> None:
        if threading.current_thread().name == str(number):
            reached.release()
            go[number].wait()

    def begin(target: Callable[[], object], number: int) -> threading.Thread:
        thread = threading.Thread(target=target, name=str(number), daemon=True)
        thread.start()
        if not reached.acquire(timeout=10):  # the control thread has run the call-back
            os._exit(0)
        return thread

    def arrive(number: int) -> None:
        """Have a message arrive, whose receive has not been delivered."""
        while True:
            request = world.irecv(source=me, tag=2)
            request.add_done_callback(lambda _: stop(number))
            world.send(b"x", me, 2)
            while not worker.pending and not request._finished:
                world.iprobe(me, 99)  # delivers only what has completed before
            if not request._finished:
                return

    def start_when_complete() -> None:
        while True:
            with contextlib.suppress(RuntimeError):  # in flight
                send.start()
                return
            world.iprobe(me, 99)

    def start() -> None:
        with contextlib.suppress(RuntimeError):  # the other thread has started it
            send.start()

    send = world.send_init(bytes(1_000_000), me, 1)
    worker = send._worker
    send.start()
    send.add_done_callback(lambda _: stop(1))
    arrive(0)
    drain = begin(worker.drain, 0)  # so that the start does not deliver the send
    received = world.irecv(source=me, tag=1)
    while not received.done():
        world.iprobe(me, 99)
    first = begin(start_when_complete, 1)
    go[0].set()
    drain.join()
    arrive(2)
    second = begin(start, 2)
    go[1].set()
    first.join()
    go[2].set()
    second.join()
    assert len(world.recv(source=me, tag=1)) == 1_000_000


def test_started_by_two_threads() -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", program(start_in_two_threads)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr


def used(pair: Pair) -> int:
    return int(pair.sides[0].core.counters()["requests_used"])


def test_started_again_beside_wait_any_leaves_nothing(loop_pair: Pair) -> None:
    """The start happens while the thread inside wait_any still holds the core's request."""
    never, into = loop_pair.right.irecv(tag=9), bytearray(1)
    receive = loop_pair.right.recv_init(into, 1)
    before = used(loop_pair)
    started = threading.Event()

    def again(request):
        request.start()
        started.set()

    for _ in range(ROUNDS):
        started.clear()
        receive.start()
        receive.add_done_callback(again)
        timer = threading.Timer(0.001, loop_pair.left.send, (b"x", 1))
        timer.start()
        # on a busy machine the wait may see the end before the call-back starts it again
        with contextlib.suppress(pscompy.Timeout):
            wait_any([never, receive], timeout=0.01)
        timer.join()
        while not started.is_set():  # the wait has ended before the message came
            receive.test()
        assert receive.cancel()
    assert used(loop_pair) < before + ROUNDS // 10
    assert never.cancel()


def test_a_callback_may_start_it_again(loop_pair: Pair) -> None:
    """wait() and the others refer to the latest start."""
    for wait in (pscompy.Request.wait, lambda it: wait_all([it])[0], lambda it: wait_any([it])[1]):
        receive = loop_pair.right.recv_init(bytearray(3), 1)
        receive.start()
        receive.add_done_callback(lambda request: request.start())
        for data in (b"1", b"22"):
            loop_pair.left.send(data, 1)
        assert wait(receive).nbytes == 2


def test_a_start_by_a_callback_is_not_disturbed_by_another(loop_pair: Pair) -> None:
    """The call-back runs inside start(): one of the two starts is refused."""
    receive = loop_pair.right.recv_init(bytearray(3), 1)
    receive.start()
    receive.add_done_callback(lambda request: request.start())
    loop_pair.left.send(b"1", 1)
    with pytest.raises(RuntimeError, match="in flight"):
        receive.start()
    loop_pair.left.send(b"22", 1)
    assert receive.wait().nbytes == 2


def test_a_failed_start_leaves_it_complete(make: Callable[..., Pair]) -> None:
    pair = make("shm")
    send = pair.left.send_init(b"x")
    send.start()
    send.wait()
    pair.close()
    with pytest.raises(pscompy.Closed):
        send.start()
    assert send.done()
    assert send.wait() is None
