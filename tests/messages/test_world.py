"""The base type of World: peers by rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import pscompy
from pscompy.binding import _binding
from tests.messages.conftest import Pair, Peer

CONTEXT = 2


class World(_binding.World):
    """A world of three ranks in one process: rank 1 is ourselves, the others are lazy."""

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
        twin._bind(side.worker, int(pscompy.core.ffi.cast("uintptr_t", side.handles[0])), CONTEXT)
        return twin


@pytest.fixture
def world(make: Callable[..., Pair]) -> Iterator[World]:
    world = World(make("loop", ranks=(1, 1)))
    yield world
    del world


def test_send_and_receive(world: World) -> None:
    world.send(b"a", 1)
    world.send(b"b", dest=1, tag=3)
    assert world.recv(source=1) == b"a"
    assert world.recv_status(tag=3) == (b"b", (1, 3, 1))
    assert world.asked == [1]


def test_a_wildcard_receive_asks_for_nobody(world: World) -> None:
    receive = world.irecv()
    assert world.iprobe() is None
    assert world.improbe() is None
    with pytest.raises(pscompy.Timeout) as caught:
        world.probe(timeout=0.01)
    assert caught.value.peer is None
    assert world.asked == []
    world.send(b"x", np.int64(1))
    assert receive.wait(60) == b"x"
    assert receive.status == (1, 0, 1)


def test_sendrecv_and_probes(world: World) -> None:
    assert world.sendrecv(b"y", 1, timeout=60) == b"y"
    into = bytearray(2)
    assert world.sendrecv(b"zz", dest=1, recvbuf=into, source=1, sendtag=4) == (1, 4, 2)
    world.isend(b"probed", 1, 6)
    assert world.probe(1, 6) == world.iprobe(source=1) == (1, 6, 6)
    message = world.mprobe(source=1)
    assert message.recv() == b"probed"


@pytest.mark.parametrize("rank", [-1, 3, 2**40, -(2**31) + 1])
def test_ranks_that_are_not_there(world: World, rank: int) -> None:
    for call in (
        lambda: world.send(b"", rank),
        lambda: world.isend(b"", dest=rank),
        lambda: world.recv(source=rank),
        lambda: world.iprobe(rank),
    ):
        with pytest.raises(IndexError, match="ranks 0 to 2"):
            call()


def test_a_message_has_one_destination(world: World) -> None:
    with pytest.raises(IndexError, match="to one rank"):
        world.send(b"", pscompy.ANY_SOURCE)
    with pytest.raises(TypeError):
        world.send(b"", "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing required argument: 'dest'"):
        world.send(b"")  # type: ignore[call-arg]


def test_peers_are_connections_with_the_same_context(world: World) -> None:
    world.send(b"by the world", 1)
    assert world.asked == [1]
    twin = world._peer(1)
    assert twin.recv_status(timeout=60) == (b"by the world", (1, 0, 12))


def test_contexts_are_apart(world: World) -> None:
    plain = world.pair.left
    plain.send(b"plain")
    world.send(b"world", 1)
    assert world.recv() == b"world"
    assert plain.recv() == b"plain"


def test_errors_of_a_peer_name_it(world: World) -> None:
    with pytest.raises(pscompy.Timeout) as caught:
        world.recv(source=1, timeout=0)
    assert caught.value.peer == "rank 1"


def test_a_peer_that_is_none(make: Callable[..., Pair]) -> None:
    class Bad(_binding.World):
        def _peer(self, rank: int) -> object:
            return rank

    bad = Bad()
    bad._bind(make("loop").sides[0].worker, 1, CONTEXT)
    with pytest.raises(TypeError, match=r"_peer\(0\) returned 0"):
        bad.send(b"", 0)
