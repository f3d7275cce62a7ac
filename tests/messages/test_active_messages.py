"""Active messages: handlers by id."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import pscompy
from tests.messages.conftest import Pair


@pytest.mark.parametrize("nbytes", [0, 10, 1_000_000])
def test_handlers(pair: Pair, nbytes: int) -> None:
    got: list[Any] = []
    pair.sides[-1].worker.on_message(7, lambda *message: got.append(message))
    sender = threading.Thread(target=pair.left.am_send, args=(7, b"head", b"p" * nbytes))
    sender.start()
    pair.until(lambda: got)
    sender.join()
    ((source, header, payload),) = got
    assert source is pair.right
    assert (header, payload) == (b"head", b"p" * nbytes)


def test_order_and_pieces(pair: Pair) -> None:
    got: list[bytes] = []
    pair.sides[-1].worker.on_message(1, lambda source, header, payload: got.append(bytes(payload)))
    for i in range(20):
        pair.left.am_send(1, b"", [bytes([i]), b"-"])
    pair.until(lambda: len(got) == 20)
    assert got == [bytes([i]) + b"-" for i in range(20)]


def test_handlers_run_while_others_wait(loop_pair: Pair) -> None:
    """A blocked receive delivers active messages, and their handler may send."""
    worker, connection = loop_pair.sides[0].worker, loop_pair.left
    worker.on_message(2, lambda source, header, payload: source.send(payload))
    connection.am_send(2, b"", b"echo")
    assert connection.recv(timeout=60) == b"echo"


def test_many_messages_whose_handlers_send(make: Callable[..., Pair]) -> None:
    """A handler that sends does not make delivery nest one level deeper per message."""
    pair = make("loop")
    depth = [0, 0]

    def handler(source: Any, header: bytes, payload: bytearray) -> None:
        depth[0] += 1
        depth[1] = max(depth)
        source.isend(payload)
        depth[0] -= 1

    pair.sides[0].worker.on_message(3, handler)
    requests = []
    for _ in range(500):
        pair.left.am_send(3, b"", b"x")
        requests.append(pair.left.irecv())
    pscompy.wait_all(requests, timeout=60)
    assert depth[1] < 5


def test_handlers_that_raise(loop_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    loop_pair.sides[0].worker.on_message(4, lambda *message: 1 / 0)
    loop_pair.left.am_send(4, b"", b"")
    loop_pair.until(lambda: seen)
    assert seen[0].exc_type is ZeroDivisionError


def test_removed_handlers(loop_pair: Pair) -> None:
    worker = loop_pair.sides[0].worker
    got: list[Any] = []
    worker.on_message(5, lambda *message: got.append(message))
    worker.on_message(5, None)
    worker.on_message(6, None)
    loop_pair.left.am_send(5, b"", b"dropped")
    loop_pair.settle()
    assert got == []


def test_arguments(loop_pair: Pair) -> None:
    worker = loop_pair.sides[0].worker
    with pytest.raises(ValueError, match="the id is a number from 0"):
        worker.on_message(-1, print)
    with pytest.raises(TypeError, match="callable"):
        worker.on_message(1, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the id is a number from 0"):
        loop_pair.left.am_send(2**31, b"", b"")
    with pytest.raises(TypeError, match="header must be a bytes-like"):
        loop_pair.left.am_send(1, None, b"")  # type: ignore[arg-type]
    with pytest.raises(pscompy.PscomError):
        loop_pair.left.am_send(1, bytes(1 << 20), b"")
