"""Persistent requests are described once and started many times, over eager and rendezvous."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import pscompy
from pscompy.api.request import PersistentRequest, Request, wait_all
from tests.messages.conftest import Pair


@pytest.mark.parametrize("nbytes", [0, 8, 2_000_000])
def test_started_again_and_again(pair: Pair, nbytes: int) -> None:
    out, into = np.zeros(nbytes, "u1"), np.zeros(nbytes, "u1")
    send, receive = pair.left.send_init(out, tag=3), pair.right.recv_init(into, tag=3)
    for i in range(5):
        out[:] = i
        into[:] = 255
        receive.start()
        send.start()
        _, status = pair.wait(send, receive)
        assert (status.tag, status.nbytes) == (3, nbytes)
        assert receive.status == status
        assert np.array_equal(out, into)


def test_it_is_a_request(loop_pair: Pair) -> None:
    request = loop_pair.left.send_init(b"x")
    assert isinstance(request, PersistentRequest)
    assert isinstance(request, Request)


def test_before_the_first_start_there_is_nothing_to_wait_for(loop_pair: Pair) -> None:
    request = loop_pair.left.recv_init(bytearray(4))
    assert request.test()
    assert request.wait(timeout=0) is None
    assert request.status is None
    assert wait_all([request]) == [None]


def test_no_start_while_it_is_in_flight(loop_pair: Pair) -> None:
    request = loop_pair.left.recv_init(bytearray(4))
    request.start()
    with pytest.raises(RuntimeError, match="in flight"):
        request.start()
    assert request.cancel()
    with pytest.raises(pscompy.Cancelled):
        request.wait()
    request.start()
    loop_pair.wait(loop_pair.left.isend(b"four"), request)


def test_a_receive_needs_a_buffer_that_may_be_written(loop_pair: Pair) -> None:
    with pytest.raises(TypeError, match="needs a buffer"):
        loop_pair.left.recv_init(None)  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        loop_pair.left.recv_init(b"read-only")


def test_each_start_has_its_own_end(loop_pair: Pair) -> None:
    request = loop_pair.left.recv_init(bytearray(2))
    request.start()
    with pytest.raises(pscompy.Truncated):
        loop_pair.wait(loop_pair.left.isend(b"long"), request)
    request.start()
    loop_pair.wait(loop_pair.left.isend(b"ok"), request)
    assert request.result().nbytes == 2


def test_callbacks_are_of_one_start(loop_pair: Pair) -> None:
    request = loop_pair.left.recv_init(bytearray(1))
    ends: list[Request] = []
    request.start()
    request.add_done_callback(ends.append)
    loop_pair.wait(loop_pair.left.isend(b"1"), request)
    request.start()
    loop_pair.wait(loop_pair.left.isend(b"2"), request)
    assert ends == [request]


def test_dropped_in_flight_a_send_completes(loop_pair: Pair) -> None:
    request = loop_pair.left.send_init(b"l" * 2_000_000)
    request.start()
    del request
    gc.collect()
    received = loop_pair.right.irecv()
    loop_pair.wait(received)
    assert received.result() == b"l" * 2_000_000


class Memory(bytearray):
    """A buffer whose end of life can be observed by a weak reference."""


def test_it_keeps_its_buffer_as_long_as_it_lives(loop_pair: Pair) -> None:
    memory = Memory(b"kept")
    gone = weakref.ref(memory)
    request = loop_pair.left.send_init(memory)
    del memory
    for _ in range(2):
        request.start()
        receive = loop_pair.right.irecv()
        assert loop_pair.wait(request, receive)[1] == b"kept"
    assert gone() is not None
    del request
    gc.collect()
    assert gone() is None


def test_after_the_end_of_the_session(make: Callable[..., Pair]) -> None:
    pair = make("shm")
    request = pair.left.send_init(b"x")
    pair.close()
    with pytest.raises(pscompy.Closed):
        request.start()
    assert request.wait() is None
