"""Memory of the pool."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest
from pooled import (
    MIB,
    block,
    told,
)

import pscompy


@pytest.mark.parametrize("shape", [0, 1, 7, (3, 5), (), [2, 2, 2], np.int64(4)])
@pytest.mark.parametrize("dtype", [np.uint8, "f8", complex, np.dtype("i4,f4")])
def test_empty_is_an_array_like_numpys(open_session, shape, dtype):
    array, like = open_session().empty(shape, dtype), np.empty(shape, dtype)
    assert (array.shape, array.dtype) == (like.shape, like.dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.flags.aligned
    array[...] = np.zeros(shape, dtype)
    assert (array == np.zeros(shape, dtype)).all()


def test_empty_holds_numbers_if_nothing_is_said(open_session):
    assert open_session().empty(3).dtype == np.float64


@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [
        (3, object, TypeError),
        (3, [("a", "i4"), ("b", object)], TypeError),
        (3, "S", TypeError),
        (-1, "u1", ValueError),
        ((1 << 40, 1 << 40), "u1", ValueError),
        ("three", "u1", TypeError),
    ],
)
def test_what_cannot_be_an_array_of_the_pool(open_session, shape, dtype, error):
    with pytest.raises(error):
        open_session().empty(shape, dtype)


def test_allocate_gives_writable_bytes(open_session):
    memory = open_session().allocate(10_000)
    assert (memory.nbytes, memory.format, memory.readonly) == (10_000, "B", False)
    memory[:] = bytes(range(250)) * 40
    assert bytes(memory[249:252]) == b"\xf9\x00\x01"
    with pytest.raises(ValueError, match="the size"):
        open_session().allocate(-1)


def test_a_block_is_used_again_when_nothing_refers_to_it(open_session):
    session = open_session()
    array = session.empty(MIB, np.uint8)
    where = array.ctypes.data
    part = array[10:20]
    del array
    assert session.empty(MIB, np.uint8).ctypes.data != where, "a part of it was alive"
    del part
    assert session.empty(MIB, np.uint8).ctypes.data == where


def test_blocks_of_all_sizes_do_not_overlap(open_session):
    session = open_session(POOL_MAX="256M")
    rng, alive = np.random.default_rng(7), {}
    for turn in range(600):
        if alive and rng.random() < 0.45:
            number, array = alive.popitem()
            assert (array == number % 251).all()
        else:
            alive[turn] = session.empty(int(2 ** rng.uniform(0, 21)), np.uint8)
            alive[turn][...] = turn % 251
    for number, array in alive.items():
        assert (array == number % 251).all()
    assert session.stats["pool_exhausted"] == 0


def test_split_blocks_are_joined_for_a_long_one(open_session):
    session = open_session(POOL_MAX=(16 << 20) + 4096)
    small = [session.empty(MIB, np.uint8) for _ in range(16)]
    assert session.stats["pool_exhausted"] == 0
    small.clear()
    long = session.empty(16 * MIB, np.uint8)
    assert session.stats["pool_exhausted"] == 0
    long[...] = 1


def test_one_long_array_makes_room_for_another(open_session):
    session = open_session(POOL_MAX="200M")
    for size in (70, 100, 150, 190, 80):
        array = session.empty(size * MIB, np.uint8)
        array[::MIB] = 1
        del array
    assert session.stats["pool_exhausted"] == 0


def test_an_exhausted_pool_gives_ordinary_memory_and_counts(open_session):
    session = open_session(POOL_MAX="8M")
    arrays = [session.empty(MIB, np.uint8) for _ in range(12)]
    for number, array in enumerate(arrays):
        array[...] = number
    assert session.stats["pool_exhausted"] >= 4
    assert all((array == number).all() for number, array in enumerate(arrays))


def test_a_pool_of_nothing(open_session):
    session = open_session(POOL_MAX=0)
    assert bytes(session.allocate(3)[:0]) == b""
    assert session.stats["pool_exhausted"] == 1


def test_memory_outlives_its_session(open_session):
    session = open_session()
    array, bytes_ = block(session, MIB, 3)
    session.close()
    assert told(array) == bytes_
    array[0] = 77
    assert array[0] == 77
    with pytest.raises(pscompy.Closed):
        session.empty(1)


def test_descriptors_go_with_the_session_and_the_memory(open_session):
    gc.collect()  # free the arrays that other tests have left
    before = set(os.listdir("/proc/self/fd"))
    session = open_session()
    array = session.empty(MIB, np.uint8)
    session.close()
    assert len(set(os.listdir("/proc/self/fd")) - before) == 1, "the segment's"
    del array
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_forked_child_touches_nothing(open_session):
    session = open_session()
    array = session.empty(MIB, np.uint8)
    array[0] = 5
    pid = os.fork()
    if pid == 0:
        good = array[0] == 5
        del array
        gc.collect()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert array[0] == 5
    where = array.ctypes.data
    del array
    assert session.empty(MIB, np.uint8).ctypes.data == where, "the child gave it back"
