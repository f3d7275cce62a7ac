"""Arrays that are not contiguous: what numpy says they hold is what is sent and received."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import pscompy
from tests.messages.conftest import Pair

UNTOUCHED = 0xEE
Part = tuple[str, tuple[int, ...], tuple[slice, ...], tuple[int, ...]]


def part_of(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """A whole array, and a part of it: its slices, with its dimensions in another order."""
    dtype, shape, slices, order = part
    whole = np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, UNTOUCHED, "u1")
    whole = whole.view(dtype).reshape(shape)
    return whole, whole[slices].transpose(order)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    n = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(0 if n > 1 else 1, 24)) for _ in range(n))
    slices = tuple(draw(st.slices(size)) for size in shape)
    order = tuple(draw(st.permutations(range(n))))
    dtype = draw(st.sampled_from(["u1", "i2", "f4", "f8", "c16", "S3", "i4,f8"]))
    return dtype, shape, slices, order


REVERSED = slice(None, None, -1)
ALL = slice(None)
LARGE: list[Part] = [
    ("f8", (1024, 1024), (ALL, slice(None, None, 2)), (0, 1)),  # 4 MiB in runs of 8 bytes
    ("f8", (700, 700), (ALL, ALL), (1, 0)),
    ("u1", (1 << 21,), (REVERSED,), (0,)),
    ("f4", (64, 64, 300), (slice(1, -1), slice(1, -1), slice(1, -1)), (0, 1, 2)),
    ("i2", (30_000, 2), (ALL, slice(0, 1)), (0, 1)),
]


def transfer(pair: Pair, sent: np.ndarray, into: Any) -> pscompy.Status:
    message = pair.right.irecv(into)
    _, status = pair.wait(pair.left.isend(sent), message)
    return status


def check_part(pair: Pair, part: Part) -> None:
    whole, there = part_of(part)
    _, here = part_of(part)
    content = np.random.default_rng(1).bytes(here.nbytes)
    if content:
        here[...] = np.frombuffer(content, here.dtype).reshape(here.shape)
    plain = here.tobytes()
    assert transfer(pair, here, there).nbytes == here.nbytes
    assert there.tobytes() == plain
    there[...] = np.full(there.itemsize, UNTOUCHED, "u1").view(there.dtype)
    assert (whole.reshape(-1).view("u1") == UNTOUCHED).all(), "written beside the part"
    assert pair.wait(pair.right.irecv(), pair.left.isend(here))[0] == plain


@pytest.mark.parametrize("part", LARGE)
def test_large_parts(pair: Pair, part: Part) -> None:
    check_part(pair, part)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(part=parts())
@example(part=("f8", (3, 0), (ALL, ALL), (1, 0)))
@example(part=("u1", (2,), (slice(0, 2, 2),), (0,)))
def test_any_part(pair: Pair, part: Part) -> None:
    check_part(pair, part)


def test_a_halo_of_columns(pair: Pair) -> None:
    """Persistent requests take the current contents at each start."""
    field = np.arange(48.0).reshape(6, 8)
    send = pair.left.send_init(field[:, 1], 3)
    receive = pair.right.recv_init(field[:, -1], 3)
    for step in range(3):
        field[:, 1] += step
        receive.start()
        send.start()
        pair.wait(send, receive)
        assert (field[:, -1] == field[:, 1]).all()
        assert (field[:, 6] == np.arange(6, 48, 8)).all()


def test_one_copy_is_counted(make: Callable[..., Pair]) -> None:
    """A short message: one copy packs it, one puts it in the ring; one takes it from there."""
    pair = make("shm")
    counters = [side.core.counters for side in pair.sides]
    array = np.zeros((100, 4))
    before = [counter()["copied_bytes"] for counter in counters]
    receive = pair.right.irecv(array[:, 2])
    pair.left.send(array[:, 1])
    pair.wait(receive)
    sent, received = (
        counter()["copied_bytes"] - old for counter, old in zip(counters, before, strict=True)
    )
    assert (sent, received) == (2 * 800, 800)


@pytest.mark.parametrize("rows", [10, 100_000])
def test_truncated(pair: Pair, rows: int) -> None:
    there = np.zeros((rows // 2, 3))
    receive = pair.right.irecv(there[:, 1])
    send = pair.left.isend(np.arange(2.0 * rows)[::2])
    pair.until(lambda: receive.test() and send.test())
    with pytest.raises(pscompy.Truncated) as caught:
        receive.result()
    assert caught.value.nbytes == 8 * rows
    assert (there[:, 1] == np.arange(rows // 2) * 2).all()
    assert not there[:, ::2].any()


@pytest.mark.parametrize("rows", [10, 100_000])
def test_given_back(pair: Pair, rows: int) -> None:
    """A receive that nobody waited for returns its message, whole."""
    there = np.zeros((rows, 3))
    receive = pair.right.irecv(there[:, 1])
    send = pair.left.isend(np.arange(2.0 * rows)[::2])
    pair.until(lambda: receive._finished)
    receive._requeue()
    there[:] = 0
    again = pair.right.irecv(there[:, 2])
    pair.wait(send, again)
    assert (there[:, 2] == np.arange(rows) * 2).all()


def test_cancelled(pair: Pair) -> None:
    there = np.zeros((10, 3))
    receive = pair.right.irecv(there[:, 1])
    assert receive.cancel()
    pair.left.send(np.ones((10, 2))[:, 0])
    pair.settle()
    assert pair.right.recv(timeout=60) == np.ones(10).tobytes()
    assert not there.any()


def test_the_array_may_change_at_once(pair: Pair) -> None:
    here = np.ones((100_000, 2))
    there = np.zeros((100_000, 2))
    send = pair.left.isend(here[:, 0], lend=True)
    here[:] = 5
    pair.wait(send, pair.right.irecv(there[:, 0]))
    assert (there[:, 0] == 1).all()


def test_broadcast_arrays_are_sent(loop_pair: Pair) -> None:
    loop_pair.left.send(np.broadcast_to(np.arange(3.0), (4, 3)))
    loop_pair.settle()
    assert loop_pair.right.recv(timeout=60) == np.tile(np.arange(3.0), 4).tobytes()


BASE = np.zeros(16)
OVERLAPPING = [
    as_strided(BASE, (4, 3), (0, 8)),
    sliding_window_view(BASE, 4, writeable=True),
    as_strided(BASE.view("u1"), (8,), (0,)),
    as_strided(BASE, (4,), (4,)),
    as_strided(BASE[8:], (3, 3), (-8, 16)),
]


@pytest.mark.parametrize("into", OVERLAPPING, ids=lambda it: f"{it.shape}{it.strides}")
def test_overlapping_targets(loop_pair: Pair, into: np.ndarray) -> None:
    for receive in (loop_pair.right.recv, loop_pair.right.irecv, loop_pair.right.recv_init):
        with pytest.raises(BufferError, match="elements share memory: receive into a copy"):
            receive(into)


def test_read_only_targets(loop_pair: Pair) -> None:
    field = np.zeros((4, 4))
    field.flags.writeable = False
    with pytest.raises(BufferError, match="read-only"):
        loop_pair.right.recv(field[:, 1])


def test_columns_of_objects(loop_pair: Pair) -> None:
    with pytest.raises(TypeError, match="Python objects"):
        loop_pair.left.send(np.full((3, 3), None)[:, 1])


def test_the_array_is_released(loop_pair: Pair) -> None:
    memory = bytearray(64)
    view = memoryview(memory)[::2]
    loop_pair.left.send(view)
    loop_pair.settle()
    loop_pair.right.recv(view, timeout=60)
    del view
    gc.collect()
    memory.append(1)  # BufferError while it is exported
    assert len(memory) == 65
