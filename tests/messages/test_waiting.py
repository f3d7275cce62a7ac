"""Blocking calls that end without a message: time-outs, signals, a session that closes."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import pscompy
from tests.messages.conftest import Pair
from tests.waiting import asleep, idles

BIG = 4_000_000


class Interrupt(Exception):
    pass


@pytest.fixture
def interrupted() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Runs a blocking call; once it sleeps, a signal arrives and its handler raises Interrupt."""

    def handler(number: int, frame: object) -> None:
        raise Interrupt

    def send_signal(ended: threading.Event) -> None:
        main = threading.main_thread()
        while not ended.is_set() and not asleep(main.native_id or 0):
            pass
        if not ended.is_set():
            signal.pthread_kill(main.ident or 0, signal.SIGALRM)

    def make(call: Callable[[], object]) -> None:
        ended = threading.Event()
        sender = threading.Thread(target=send_signal, args=(ended,))
        with pytest.raises(Interrupt):
            sender.start()
            try:
                call()
            finally:
                ended.set()
        sender.join()

    before = signal.signal(signal.SIGALRM, handler)
    yield make
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("buffer", [None, bytearray(5)], ids=["new", "into"])
def test_a_message_that_arrives_while_a_handler_raises_goes_back(
    loop_pair: Pair, buffer: bytearray | None
) -> None:
    """The handler lets the receive complete, as a thread that polls may at the same moment."""

    def handler(number: int, frame: object) -> None:
        loop_pair.wait(*[loop_pair.left.isend(data, tag=1) for data in (b"first", b"second")])
        for _ in range(10):
            loop_pair.progress()
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Interrupt):
            loop_pair.right.recv(buffer, tag=1)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert loop_pair.right.recv(tag=1) == b"first"
    assert loop_pair.right.recv(tag=1) == b"second"


# ---- time-outs ----


def test_a_timed_out_receive_takes_nothing(pair: Pair) -> None:
    for receive in (pair.right.recv, pair.right.probe, pair.right.mprobe, pair.right.recv_status):
        with pytest.raises(pscompy.Timeout) as caught:
            receive(timeout=0.005)
        assert caught.value.request is None
        assert caught.value.peer == pair.right.name
    pair.left.send(b"kept")
    pair.settle()
    assert pair.right.recv(timeout=60) == b"kept"


def test_a_timeout_of_zero_looks_once(pair: Pair) -> None:
    with pytest.raises(pscompy.Timeout):
        pair.right.recv(timeout=0)
    pair.left.send(b"there")
    pair.settle()
    assert pair.right.recv(timeout=0) == b"there"


def test_a_receive_that_is_under_way_cannot_time_out_without_trace(
    make: Callable[..., Pair],
) -> None:
    """The peer has sent a part of the message and stops: the request owns the buffer."""
    pair = make("tcp", scheme="am", eager_max=1000)
    sent = pair.left.isend(b"s" * BIG)
    pair.settle()
    into = bytearray(BIG)
    with pytest.raises(pscompy.Timeout) as caught:
        pair.right.recv(into, timeout=0.05)
    request = caught.value.request
    assert isinstance(request, pscompy.Request)
    with pytest.raises(BufferError):
        into.append(1)
    pair.wait(sent, request)
    assert request.result() == (pair.right, 0, BIG)
    assert into == b"s" * BIG


def test_a_timed_out_send_is_withdrawn_if_nothing_has_left(make: Callable[..., Pair]) -> None:
    pair = make("shm", up=False)
    pair.sides[0].conns[0].begin_connecting()
    data = bytearray(b"never sent")
    with pytest.raises(pscompy.Timeout) as caught:
        pair.left.send(data, timeout=0.02)
    assert caught.value.request is None
    data.append(1)


def test_a_timed_out_send_that_has_left(make: Callable[..., Pair]) -> None:
    pair = make("tcp", eager_max=1000)
    data = bytearray(BIG)
    with pytest.raises(pscompy.Timeout) as caught:
        pair.left.send(data, timeout=0.02)
    request = caught.value.request
    assert isinstance(request, pscompy.Request)
    with pytest.raises(BufferError):
        data.append(1)
    pair.wait(request, pair.right.irecv())
    data.append(1)


def test_timed_calls_in_time(pair: Pair) -> None:
    pair.left.send(b"abc", timeout=60)
    pair.settle()
    assert pair.right.probe(timeout=60).nbytes == 3
    assert pair.right.recv_status(timeout=60) == (b"abc", (pair.right, 0, 3))


# ---- sleeping ----


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_blocked_receive_sleeps(make: Callable[..., Pair], transport: str) -> None:
    """The receive sleeps without interruption except to check for signals; an earlier wake-up
    does not keep it awake."""
    pair = make(transport)
    woken: list[float] = []

    def used() -> float:
        timer = threading.Timer(1.0, lambda: pair.left.send(b"wake up"))
        timer.start()
        begun, before = time.monotonic(), time.process_time()
        wakings = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        assert pair.right.recv() == b"wake up"
        wakings = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - wakings
        woken.append(wakings / (time.monotonic() - begun))
        timer.join()
        return time.process_time() - before

    for _ in range(2):
        assert idles(used, 0.3)
    assert min(woken) < 50


# ---- signals ----


def test_a_signal_interrupts_a_receive(
    pair: Pair, interrupted: Callable[[Callable[[], object]], None]
) -> None:
    for receive in (pair.right.recv, pair.right.probe, pair.right.irecv(tag=9).wait):
        interrupted(receive)
    pair.left.send(b"usable")
    pair.settle()
    assert pair.right.recv(timeout=60) == b"usable"


def test_a_signal_interrupts_a_wait(
    loop_pair: Pair, interrupted: Callable[[Callable[[], object]], None]
) -> None:
    requests = [loop_pair.right.irecv(tag=tag) for tag in range(3)]
    interrupted(lambda: pscompy.wait_all(requests))
    interrupted(lambda: pscompy.wait_any(requests))
    for tag in range(3):
        loop_pair.left.send(b"", tag)
    assert pscompy.wait_all(requests) == [b""] * 3


def test_a_signal_in_a_send_that_has_left(
    make: Callable[..., Pair], interrupted: Callable[[Callable[[], object]], None]
) -> None:
    """The library holds the buffer until the send is complete, even if the program has no
    request."""
    pair = make("tcp", eager_max=1000)
    data = bytearray(b"d" * BIG)
    interrupted(lambda: pair.left.send(data))
    with pytest.raises(BufferError):
        data.append(1)
    assert pair.sides[0].worker.pending
    receive = pair.right.irecv()
    pair.wait(receive)
    assert receive.result() == b"d" * BIG

    def released() -> bool:
        try:
            data.append(1)
        except BufferError:
            return False
        return True

    pair.until(released)
    assert not pair.sides[0].worker.pending


def test_a_handler_that_returns_does_not_interrupt(loop_pair: Pair) -> None:
    handled = []

    def handler(number: int, frame: object) -> None:
        handled.append(number)
        loop_pair.left.send(b"from the handler")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert loop_pair.right.recv(timeout=60) == b"from the handler"
    finally:
        signal.signal(signal.SIGALRM, before)
    assert handled == [signal.SIGALRM]


# ---- the end of a session ----


def test_closing_wakes_blocked_calls(make: Callable[..., Pair]) -> None:
    pair = make("loop")
    errors: list[BaseException] = []

    def block(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    pending = pair.right.irecv(tag=1)
    event = pair.sides[0].worker.event()
    calls: list[Callable[[], object]] = [
        lambda: pair.right.recv(tag=2),
        lambda: pair.right.recv(tag=2, timeout=60),
        lambda: pair.right.probe(),
        pending.wait,
        event.wait,
        lambda: pscompy.wait_any([pending, event]),
    ]
    threads = [threading.Thread(target=block, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
        while not asleep(thread.native_id or 0):
            pass
    pair.sides[0].close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert [type(error) for error in errors] == [pscompy.Closed] * len(calls)
    for request in (pending, event):
        with pytest.raises(pscompy.Closed):
            request.result()


def test_after_closing(pair: Pair) -> None:
    kept = pair.right.irecv()
    pair.wait(pair.left.isend(b"kept"), kept)
    into = bytearray(4)
    pending = pair.right.irecv(into, tag=77)
    pair.left.send(b"message", 5)
    pair.settle()
    message = pair.right.mprobe(tag=5)
    pair.close()
    pair.close()
    assert kept.result() == b"kept"
    into.append(1)
    for call in (
        lambda: pair.left.send(b""),
        lambda: pair.right.recv(),
        lambda: pair.right.iprobe(),
        lambda: message.recv(),
        pair.sides[0].worker.event,
    ):
        with pytest.raises(pscompy.Closed):
            call()
    assert pending.test()


def test_closing_inside_a_callback(make: Callable[..., Pair]) -> None:
    pair = make("loop")
    receive = pair.right.irecv(tag=1)
    receive.add_done_callback(lambda request: pair.sides[0].close())
    pair.left.send(b"", 1)
    with pytest.raises(pscompy.Closed):
        pair.right.recv(tag=2)


def test_forked(make: Callable[..., Pair]) -> None:
    pair = make("loop")
    request = pair.right.irecv()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            pair.sides[0].core.forked()
            pair.sides[0].worker.forked()
            for call in (pair.left.recv, request.wait, lambda: pair.left.isend(b"")):
                with pytest.raises(pscompy.Closed, match="fork"):
                    call()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0
    pair.left.send(b"the parent goes on")
    assert request.wait(60) == b"the parent goes on"
