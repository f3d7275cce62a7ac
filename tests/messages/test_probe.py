"""Probing for messages before they are received."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest

import pscompy
from tests.messages.conftest import Pair

BIG = 1_000_000


def test_iprobe(pair: Pair) -> None:
    assert pair.right.iprobe() is None
    pair.left.send(b"abc", 4)
    pair.until(pair.right.iprobe)
    assert pair.right.iprobe(3) is None
    assert pair.right.iprobe(tag=4) == (pair.right, 4, 3)
    assert pair.right.recv() == b"abc"
    assert pair.right.iprobe() is None


def test_iprobe_makes_progress(make: Callable[..., Pair]) -> None:
    """A loop that only calls iprobe finds a message that arrives."""
    pair = make("shm")
    pair.left.send(b"x")
    for _ in range(100_000):
        if pair.right.iprobe():
            break
    assert pair.right.recv(timeout=0) == b"x"


def test_probe_waits(make: Callable[..., Pair]) -> None:
    pair = make("shm")
    timer = threading.Timer(0.05, lambda: pair.left.send(b"later", 8))
    timer.start()
    assert pair.right.probe() == pscompy.Status(pair.right, 8, 5)
    assert pair.right.recv(timeout=0) == b"later"
    timer.join()


@pytest.mark.parametrize("nbytes", [0, 5, BIG])
def test_matched_probe(pair: Pair, nbytes: int) -> None:
    sent = pair.left.isend(b"m" * nbytes, 1)
    other = pair.left.isend(b"other", 1)
    pair.settle()
    message = pair.right.mprobe(timeout=60)
    assert message.status == (pair.right, 1, nbytes)
    second = pair.right.irecv()
    pair.wait(other, second)
    assert second.result() == b"other"
    into = bytearray(nbytes)
    if pair.one_ended or nbytes < BIG:
        assert message.recv(into).nbytes == nbytes
    else:
        thread = threading.Thread(target=sent.wait)
        thread.start()
        assert message.recv(into).nbytes == nbytes
        thread.join()
    assert into == b"m" * nbytes
    pair.wait(sent)
    with pytest.raises(ValueError, match="received already"):
        message.recv()


def test_matched_probe_into_new_memory_and_too_short(pair: Pair) -> None:
    pair.left.send(b"first")
    pair.left.send(b"second")
    pair.settle()
    first, second = pair.right.mprobe(), pair.right.improbe()
    assert second is not None
    with pytest.raises(TypeError):
        second.recv({})  # type: ignore[arg-type]
    with pytest.raises(pscompy.Truncated):
        second.recv(bytearray(2))
    assert first.recv() == b"first"


def test_improbe(pair: Pair) -> None:
    assert pair.right.improbe() is None
    posted = pair.right.irecv()
    pair.wait(pair.left.isend(b"not caught by the look before"), posted)
    pair.left.send(b"caught", 3)
    pair.settle()
    message = pair.right.improbe(3)
    assert message is not None
    assert pair.right.iprobe() is None
    assert message.recv() == b"caught"


def test_a_dropped_message_goes_back_to_its_place(pair: Pair) -> None:
    pair.left.send(b"first")
    pair.left.send(b"second")
    pair.settle()
    message = pair.right.mprobe()
    assert message.status.nbytes == 5
    del message
    gc.collect()
    assert pair.right.recv(timeout=60) == b"first"
    assert pair.right.recv(timeout=60) == b"second"
