"""Blocking and non-blocking messages over every transport."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pscompy
from tests.messages.conftest import Pair

SIZES = [0, 1, 8, 1000, 8192, 100_000, 3_000_001]


def data(nbytes: int) -> bytes:
    return np.arange(nbytes, dtype="u4").astype("u1").tobytes()


@pytest.mark.parametrize("nbytes", SIZES)
def test_into_a_buffer(pair: Pair, nbytes: int) -> None:
    into = bytearray(nbytes + 3)
    sent, status = pair.wait(pair.left.isend(data(nbytes), 9), pair.right.irecv(into, 9))
    assert sent is None
    assert status == (pair.right, 9, nbytes)
    assert into == data(nbytes) + bytes(3)


@pytest.mark.parametrize("nbytes", SIZES)
def test_into_new_memory(pair: Pair, nbytes: int) -> None:
    message = pair.right.irecv(tag=9)
    assert message.status is None
    pair.wait(pair.left.isend(data(nbytes), 9), message)
    assert type(message.result()) is bytearray
    assert message.result() == data(nbytes)
    assert message.status == (pair.right, 9, nbytes)


@pytest.mark.parametrize("nbytes", SIZES)
def test_unexpected(pair: Pair, nbytes: int) -> None:
    sent = pair.left.isend(data(nbytes), 3)
    pair.settle()
    message = pair.right.irecv()
    pair.wait(sent, message)
    assert message.result() == data(nbytes)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_two_threads_block(make: Callable[..., Pair], transport: str, nbytes: int) -> None:
    pair = make(transport)
    results: list[Any] = []

    def echo() -> None:
        for _ in range(3):
            payload, status = pair.right.recv_status()
            results.append(status)
            pair.right.send(payload, status.tag + 1)

    thread = threading.Thread(target=echo)
    thread.start()
    into = bytearray(nbytes)
    for tag in range(3):
        pair.left.send(data(nbytes), tag)
        assert pair.left.recv(into, tag + 1) == (pair.left, tag + 1, nbytes)
        assert into == data(nbytes)
    thread.join()
    assert results == [(pair.right, tag, nbytes) for tag in range(3)]


def test_order_and_tags(pair: Pair) -> None:
    for i in range(20):
        pair.left.send(bytes([i]), i % 2)
    pair.settle()
    odd = [pair.right.recv(tag=1, timeout=60)[0] for _ in range(10)]
    even = [pair.right.recv(timeout=60)[0] for _ in range(10)]
    assert odd == list(range(1, 20, 2))
    assert even == list(range(0, 20, 2))


@pytest.mark.parametrize("nbytes", [100, 2_000_000])
def test_truncation(pair: Pair, nbytes: int) -> None:
    into = bytearray(10)
    receive, sent = pair.right.irecv(into), pair.left.isend(data(nbytes))
    pair.until(lambda: sent.test() and receive.test())
    for _ in range(2):
        with pytest.raises(pscompy.Truncated) as caught:
            receive.result()
        assert caught.value.nbytes == nbytes
        assert caught.value.peer == pair.right.name
    assert into == data(nbytes)[:10]
    assert receive.status == (pair.right, 0, nbytes)
    pair.left.send(b"next")
    pair.settle()
    assert pair.right.recv(timeout=60) == b"next"


def test_truncation_of_a_message_that_is_there(pair: Pair) -> None:
    pair.left.send(b"too long")
    pair.settle()
    into = bytearray(3)
    with pytest.raises(pscompy.Truncated) as caught:
        pair.right.recv(into)
    assert caught.value.nbytes == 8
    assert into == b"too"
    assert pair.right.iprobe() is None


def test_sendrecv(pair: Pair) -> None:
    def other() -> None:
        into = bytearray(4)
        status = pair.right.sendrecv(b"right", into, 2, 1)
        got.append((status, into))

    got: list[Any] = []
    if pair.one_ended:
        assert pair.left.sendrecv(b"self", sendtag=4, recvtag=4, timeout=60) == b"self"
        return
    thread = threading.Thread(target=other)
    thread.start()
    assert pair.left.sendrecv(b"left", sendtag=1, recvtag=2) == b"right"
    thread.join()
    assert got == [((pair.right, 1, 4), b"left")]


def test_sendrecv_that_cannot_send_withdraws_its_receive(loop_pair: Pair) -> None:
    with pytest.raises(TypeError):
        loop_pair.left.sendrecv({}, bytearray(4))  # type: ignore[arg-type]
    loop_pair.left.send(b"mine")
    loop_pair.settle()
    assert loop_pair.left.recv(timeout=60) == b"mine"


def test_lazy_connection_queues(make: Callable[..., Pair]) -> None:
    """Sends on a lazy connection do not block, and the first of them begins to open it."""
    pair = make("shm", up=False)
    begun = []

    def begin(self: object) -> None:
        begun.append(self)
        pair.sides[0].conns[0].begin_connecting()

    pair.left.__class__ = type("Lazy", (type(pair.left),), {"_begin_open": begin})
    sent = pair.left.isend(b"queued")
    assert begun == [pair.left]
    assert not sent.test()
    pair.connect()
    message = pair.right.irecv()
    assert pair.wait(sent, message)[1] == b"queued"


def test_an_error_of_begin_open_is_raised(make: Callable[..., Pair]) -> None:
    pair = make("loop", up=False)

    def refuse(self: object) -> None:
        raise RuntimeError("no")

    pair.left.__class__ = type("Refusing", (type(pair.left),), {"_begin_open": refuse})
    with pytest.raises(RuntimeError, match="no"):
        pair.left.send(b"")
    with pytest.raises(RuntimeError, match="no"):
        pair.left.iprobe()


def test_put_and_get(pair: Pair) -> None:
    """The peer has no region: it refuses the key, and the call does not hang."""
    with pytest.raises(TypeError, match="rkey must be a bytes-like"):
        pair.left.put(b"", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="offset is a number from 0"):
        pair.left.put(b"", b"", -1)
    with pytest.raises(BufferError):
        pair.left.get(b"read-only", b"")
    with pytest.raises(pscompy.PscomError):
        pair.left.put(b"data", b"no key")
