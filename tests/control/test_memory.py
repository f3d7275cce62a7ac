"""Registered memory: put, get, and closing a region."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable

import numpy as np
import pytest

import pscompy
from pscompy import Session

Make = Callable[..., Session]
Pair = tuple[Session, pscompy.Connection]


@pytest.fixture(params=["shm", "tcp"])
def pair(session: Make, request: pytest.FixtureRequest) -> Pair:
    """The session that owns the memory, and a connection to it from another session."""
    off = {"shm": {"TCP": 0}, "tcp": {"SHM": 0}}[request.param]
    owner, other = session(**off), session(**off)
    connection = other.connect(owner.listen().address)
    connection.open(60)
    return owner, connection


@pytest.mark.parametrize("size", [1, 100, 5000, 3_000_000])
def test_put_and_get(pair: Pair, size: int) -> None:
    owner, connection = pair
    memory = np.zeros(size + 7, dtype=np.uint8)
    with owner.register(memory) as region:
        data = np.arange(size, dtype=np.uint32).astype(np.uint8)
        _in_turn(owner, lambda: connection.put(data, region.rkey, offset=7))
        assert (memory[7:] == data).all()
        assert (memory[:7] == 0).all()
        back = np.zeros(size, dtype=np.uint8)
        _in_turn(owner, lambda: connection.get(back, region.rkey, offset=7))
        assert (back == data).all()


def _in_turn(owner: Session, call: Callable[[], object]) -> None:
    """Run `call` in a thread while the session that owns the memory makes progress."""
    done: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
            done.append(None)
        except BaseException as error:
            done.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        owner.progress()
    if done[0] is not None:
        raise done[0]


def test_what_lies_outside_is_refused(pair: Pair) -> None:
    owner, connection = pair
    memory = bytearray(100)
    region = owner.register(memory)
    with pytest.raises(pscompy.PscomError):
        _in_turn(owner, lambda: connection.put(b"x" * 10, region.rkey, offset=91))
    with pytest.raises(pscompy.PscomError):
        _in_turn(owner, lambda: connection.put(b"x", b"no key at all"))
    assert memory == bytearray(100)


LARGE = 64 << 20


@pytest.mark.parametrize("kind", ["put", "get"])
def test_nothing_moves_after_the_close(pair: Pair, kind: str) -> None:
    """The region is closed in the middle of an access, which fails at its origin."""
    owner, connection = pair
    memory, local = bytearray(LARGE), bytearray(b"\x07") * LARGE
    region = owner.register(memory)
    rkey = region.rkey
    errors: list[BaseException] = []

    def access() -> None:
        try:
            connection.put(local, rkey) if kind == "put" else connection.get(local, rkey)
        except pscompy.PscomError as error:
            errors.append(error)

    thread = threading.Thread(target=access)
    thread.start()
    while thread.is_alive() and memory[0] == 0 and local[0] == 7:
        owner.progress()
    region.close()
    then = bytes(memory)
    while thread.is_alive():
        owner.progress()
    assert memory == then
    assert errors or local == memory


def test_a_closed_region_is_refused_where_its_owner_is_asked(pair: Pair) -> None:
    owner, connection = pair
    memory = bytearray(100)
    region = owner.register(memory)
    rkey = region.rkey
    region.close()
    region.close()
    with pytest.raises(pscompy.PscomError):
        _in_turn(owner, lambda: connection.put(b"x", rkey))
    assert memory == bytearray(100)


def test_the_buffer_is_held_until_the_end(session: Make) -> None:
    own = session()
    memory, dropped = bytearray(10), bytearray(10)
    region = own.register(memory)
    own.register(dropped)  # the dropped region stays registered, because peers may hold its key
    for held in (memory, dropped):
        with pytest.raises(BufferError):
            held.extend(b"x")
    region.close()
    memory.extend(b"x")
    own.close()
    dropped.extend(b"x")


def test_what_cannot_be_registered(session: Make) -> None:
    own = session()
    with pytest.raises(BufferError, match="read-only"):
        own.register(b"constant")
    with pytest.raises(BufferError, match="C-contiguous"):
        own.register(np.zeros((4, 4))[:, 1])
    with pytest.raises(TypeError):
        own.register("text")
    with pytest.raises(TypeError, match="Python objects"):
        own.register(np.array([object()]))
    with pytest.raises(TypeError, match="rkey"):
        pickle.dumps(own.register(bytearray(1)))
