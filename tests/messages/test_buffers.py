"""Objects that can be sent or received into, and the errors for others."""

from __future__ import annotations

import array
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.messages.conftest import Pair
from tests.names import nameless

F_ORDER = np.asfortranarray(np.arange(6.0).reshape(2, 3))
COLUMN = np.arange(16).reshape(4, 4)[:, 1]
OBJECTS = np.array([{}, None], dtype=object)
FIELDS_WITH_OBJECTS = np.zeros(2, dtype=[("a", "i4"), ("b", "O")])
FIELD_NAMED_O = np.zeros(2, dtype=[("O", "i4"), ("bOb", "f8")])


def received(pair: Pair) -> bytearray:
    pair.settle()
    return pair.right.recv(timeout=60)


@pytest.mark.parametrize(
    "buf",
    [
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"0123456789")[2:5],
        array.array("d", [1.5, 2.5]),
        np.arange(10, dtype="f4"),
        np.arange(12).reshape(3, 4),
        np.float64(3.5),
        np.zeros((0, 4)),
        FIELD_NAMED_O,
        b"",
    ],
    ids=nameless,
)
def test_sendable(loop_pair: Pair, buf: Any) -> None:
    loop_pair.left.send(buf)
    assert received(loop_pair) == memoryview(buf).tobytes()


@pytest.mark.parametrize("buf", [COLUMN, F_ORDER, memoryview(bytes(9))[::2]], ids=nameless)
def test_not_contiguous_in_a_list(loop_pair: Pair, buf: Any) -> None:
    for message in ([b"head", buf], (buf, buf)):
        with pytest.raises(BufferError, match=r"not C-contiguous.*ascontiguousarray"):
            loop_pair.left.send(message)
    loop_pair.left.send(b"next")
    assert received(loop_pair) == b"next"


@pytest.mark.parametrize("buf", [OBJECTS, FIELDS_WITH_OBJECTS], ids=nameless)
def test_python_objects(loop_pair: Pair, buf: Any) -> None:
    with pytest.raises(TypeError, match=r"Python objects.*send_obj"):
        loop_pair.left.send(buf)


@pytest.mark.parametrize("buf", [{}, 7, None, object()], ids=nameless)
def test_no_buffer(loop_pair: Pair, buf: Any) -> None:
    with pytest.raises(TypeError, match=r"bytes-like.*send_obj"):
        loop_pair.left.send(buf)


@pytest.mark.parametrize("buf", [7, "text", object()], ids=nameless)
def test_no_buffer_to_receive_into(loop_pair: Pair, buf: Any) -> None:
    with pytest.raises(TypeError, match=r"received into a writable buffer.*recv\(source"):
        loop_pair.right.recv(buf)


def test_text(loop_pair: Pair) -> None:
    with pytest.raises(TypeError, match="encode"):
        loop_pair.left.send("text")  # type: ignore[arg-type]


def test_dates_have_no_buffer(loop_pair: Pair) -> None:
    with pytest.raises(TypeError, match="view"):
        loop_pair.left.send(np.zeros(2, dtype="M8[s]"))


READ_ONLY = np.zeros(3)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize("buf", [b"read-only", READ_ONLY, memoryview(b"abc")], ids=nameless)
def test_receive_into_read_only(loop_pair: Pair, buf: Any) -> None:
    loop_pair.left.send(b"x")
    loop_pair.settle()
    for receive in (loop_pair.right.recv, loop_pair.right.irecv):
        with pytest.raises(BufferError, match="read-only"):
            receive(buf)
    assert received(loop_pair) == b"x"


def test_am_send_of_a_column(loop_pair: Pair) -> None:
    with pytest.raises(BufferError, match="C-contiguous"):
        loop_pair.right.am_send(1, b"", COLUMN)


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 40])
def test_pieces_are_one_message(pair: Pair, kind: type, n: int) -> None:
    pieces = [bytes([i]) * (i + 1) for i in range(n)]
    request = pair.left.isend(kind(pieces))
    message = pair.right.irecv()
    pair.wait(request, message)
    assert message.result() == b"".join(pieces)


def test_receive_into_pieces(pair: Pair) -> None:
    a, b, c = bytearray(3), np.zeros(0), np.zeros(2, dtype="u2")
    request = pair.right.irecv([a, b, c])
    pair.wait(pair.left.isend(b"abc\x01\x00\x02\x00"), request)
    assert a == b"abc"
    assert list(c) == [1, 2]
    assert request.result().nbytes == 7


def test_a_bad_piece_releases_the_others(loop_pair: Pair) -> None:
    good = bytearray(4)
    with pytest.raises(TypeError):
        loop_pair.left.send([good, {}])
    with pytest.raises(BufferError):
        loop_pair.right.recv([good, b"read-only"])
    good.append(1)  # BufferError while the buffer is exported


def test_buffers_are_released(pair: Pair) -> None:
    data, into = bytearray(10), bytearray(10)
    pair.wait(pair.left.isend(data), pair.right.irecv(into))
    data.append(1)  # a bytearray refuses this while its buffer is exported
    into.append(1)
    assert (len(data), len(into)) == (11, 11)


def test_the_request_keeps_its_buffer(loop_pair: Pair) -> None:
    into = bytearray(4)
    request = loop_pair.right.irecv(into)
    with pytest.raises(BufferError):
        into.append(1)
    assert request.cancel()
    into.append(1)


def test_mmap(loop_pair: Pair) -> None:
    with mmap.mmap(-1, 4096) as region:
        sent = loop_pair.left.isend(b"m" * 4096)
        assert loop_pair.right.recv(region).nbytes == 4096
        sent.wait()
        assert region[:2] == b"mm"


TAGS: list[Any] = [-1, -2, 2**31, 2**63, -(2**70)]


@pytest.mark.parametrize("tag", TAGS)
def test_tags_out_of_range(loop_pair: Pair, tag: int) -> None:
    with pytest.raises(ValueError, match="from 0 to 2147483647"):
        loop_pair.left.send(b"", tag)
    if tag != -1:
        with pytest.raises(ValueError, match="or ANY_TAG"):
            loop_pair.right.recv(tag=tag)


@pytest.mark.parametrize("tag", ["1", 1.0, None])
def test_tags_of_a_wrong_type(loop_pair: Pair, tag: Any) -> None:
    with pytest.raises(TypeError):
        loop_pair.left.send(b"", tag)


@pytest.mark.parametrize("tag", [0, 1, 2**31 - 1, np.int64(5), True])
def test_tags_in_range(loop_pair: Pair, tag: int) -> None:
    loop_pair.left.send(b"", tag)
    loop_pair.settle()
    assert loop_pair.right.recv_status(tag=tag)[1].tag == tag


@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan")])
def test_timeouts_out_of_range(loop_pair: Pair, timeout: float) -> None:
    with pytest.raises(ValueError, match="at least 0 seconds"):
        loop_pair.right.recv(timeout=timeout)


def test_timeout_of_a_wrong_type(loop_pair: Pair) -> None:
    with pytest.raises(TypeError, match="number of seconds"):
        loop_pair.right.recv(timeout="1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.send(),
        lambda c: c.send(b"", 0, None, 4),
        lambda c: c.send(b"", buf=b""),
        lambda c: c.send(b"", tags=1),
        lambda c: c.recv(None, -1, None, 1),
        lambda c: c.put(b""),
        lambda c: c.am_send(1, b""),
    ],
)
def test_arguments_that_do_not_fit(loop_pair: Pair, call: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=r"^(send|recv|put|am_send)\(\)"):
        call(loop_pair.left)
