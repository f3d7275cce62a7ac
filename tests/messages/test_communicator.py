"""The base type Communicator, which addresses peers by rank."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pscompy
from pscompy.api.c import _binding
from tests.messages.conftest import Pair, Peer

CONTEXT = 2


class Ranks(_binding.Communicator):
    """Three ranks in one process: rank 1 is this process, the others are connected lazily."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.asked: list[int] = []
        self._bind(pair.sides[0].worker, 3, CONTEXT)

    def _peer(self, rank: int) -> Peer:
        self.asked.append(rank)
        side = self.pair.sides[0]
        if rank != 1:
            return side.connection(f"rank {rank}", rank, CONTEXT)
        twin = Peer()
        twin.name = "rank 1"
        twin._bind(side.worker, side.conns[0].address, CONTEXT)
        return twin


@pytest.fixture
def comm(make: Callable[..., Pair]) -> Iterator[Ranks]:
    comm = Ranks(make("loop", ranks=(1, 1)))
    yield comm
    del comm


def test_send_and_receive(comm: Ranks) -> None:
    comm.send(b"a", 1)
    comm.send(b"b", dest=1, tag=3)
    assert comm.recv(source=1) == b"a"
    assert comm.recv_status(tag=3) == (b"b", (1, 3, 1))
    assert comm.asked == [1]


def test_a_wildcard_receive_asks_for_nobody(comm: Ranks) -> None:
    receive = comm.irecv()
    assert comm.iprobe() is None
    assert comm.improbe() is None
    with pytest.raises(pscompy.Timeout) as caught:
        comm.probe(timeout=0.01)
    assert caught.value.peer is None
    assert comm.asked == []
    comm.send(b"x", np.int64(1))
    assert receive.wait(60) == b"x"
    assert receive.status == (1, 0, 1)


def test_sendrecv_and_probes(comm: Ranks) -> None:
    assert comm.sendrecv(b"y", 1, timeout=60) == b"y"
    into = bytearray(2)
    assert comm.sendrecv(b"zz", dest=1, recvbuf=into, source=1, sendtag=4) == (1, 4, 2)
    comm.isend(b"probed", 1, 6)
    assert comm.probe(1, 6) == comm.iprobe(source=1) == (1, 6, 6)
    message = comm.mprobe(source=1)
    assert message.recv() == b"probed"


@pytest.mark.parametrize("rank", [-1, 3, 2**40, -(2**31) + 1])
def test_ranks_that_are_not_there(comm: Ranks, rank: int) -> None:
    for call in (
        lambda: comm.send(b"", rank),
        lambda: comm.isend(b"", dest=rank),
        lambda: comm.recv(source=rank),
        lambda: comm.iprobe(rank),
        lambda: comm.connection(rank),
    ):
        with pytest.raises(IndexError, match="the ranks are 0 to 2"):
            call()


def test_a_message_has_one_destination(comm: Ranks) -> None:
    with pytest.raises(IndexError, match="to one rank"):
        comm.send(b"", pscompy.ANY_SOURCE)
    with pytest.raises(IndexError, match="to one rank"):
        comm.connection(pscompy.ANY_SOURCE)
    with pytest.raises(TypeError):
        comm.send(b"", "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a tag is a number from 0 to .*, not None"):
        comm.send(b"", 1, tag=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a tag is a number .* or ANY_TAG, not 'a'"):
        comm.recv(source=1, tag="a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing required argument: 'dest'"):
        comm.send(b"")  # type: ignore[call-arg]


def test_peers_are_connections_with_the_same_context(comm: Ranks) -> None:
    comm.send(b"by the ranks", 1)
    twin = comm.connection(1)
    assert comm.asked == [1]
    assert twin.recv_status(timeout=60) == (b"by the ranks", (1, 0, 12))
    assert comm.connection(np.int64(1)) is twin


def test_threads_get_the_same_connection(comm: Ranks) -> None:
    """Two threads use a rank for the first time at once; only one of their connections is kept."""
    both = threading.Barrier(2, timeout=60)
    make = comm._peer

    def made_by_both(rank: int) -> Peer:
        both.wait()
        return make(rank)

    comm._peer = made_by_both  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(comm.connection, (2, 2))
    assert one is other is comm.connection(2)
    assert comm.asked == [2, 2]


def test_contexts_are_apart(comm: Ranks) -> None:
    plain = comm.pair.left
    plain.send(b"plain")
    comm.send(b"ranks", 1)
    assert comm.recv() == b"ranks"
    assert plain.recv() == b"plain"


def test_errors_of_a_peer_name_it(comm: Ranks) -> None:
    with pytest.raises(pscompy.Timeout) as caught:
        comm.recv(source=1, timeout=0)
    assert caught.value.peer == "rank 1"


def test_a_peer_that_is_none(make: Callable[..., Pair]) -> None:
    class Bad(_binding.Communicator):
        def _peer(self, rank: int) -> object:
            return rank

    bad = Bad()
    bad._bind(make("loop").sides[0].worker, 1, CONTEXT)
    with pytest.raises(TypeError, match=r"_peer\(0\) returned 0"):
        bad.send(b"", 0)
