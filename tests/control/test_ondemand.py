"""The lower-name rule and simultaneous first sends between real sessions of one process."""

from __future__ import annotations

import threading

import pytest
from peers import Peer, world

from pscompy import AuthError, ConnectError, Connection, ConnectionState
from pscompy.control.handshake.frames import Kind
from pscompy.control.phases import Phase
from tests.names import ANOTHER_KEY
from tests.waiting import expect_soon


def everybody_sends_to_everybody(ranks: list[Peer]) -> None:
    pairs = [(a, b) for a in range(len(ranks)) for b in range(len(ranks))]
    sent = [ranks[a].peers[b].isend(b"%d to %d" % (a, b)) for a, b in pairs]
    for a, b in pairs:
        assert bytes(ranks[b].peers[a].recv(timeout=60)) == b"%d to %d" % (a, b)
    for request in sent:
        request.wait(60)


def made(ranks: list[Peer]) -> int:
    return sum(rank.stats["connections_up"] for rank in ranks)


@pytest.mark.parametrize("rounds", range(10))
def test_simultaneous_first_sends_make_one_connection(rounds: int) -> None:
    for _ in range(15):
        with world(2) as ranks:
            everybody_sends_to_everybody(ranks)
            # both ends of one connection, and each rank's connection to itself
            assert made(ranks) == 2 + 2


@pytest.mark.parametrize("config", [{}, {"SHM": 0}], ids=["shm", "tcp"])
def test_many_simultaneous_first_sends(config: dict[str, int]) -> None:
    size = 12
    with world(size, **config) as ranks:
        everybody_sends_to_everybody(ranks)
        assert made(ranks) == size * size


@pytest.mark.parametrize("first", [0, 1])
def test_the_lower_name_connects_whoever_begins(first: int) -> None:
    with world(2) as ranks:
        ranks[first].peers[1 - first].send(b"hello", timeout=60)
        assert bytes(ranks[1 - first].peers[first].recv(timeout=60)) == b"hello"
        lower = ranks[0].peers[1]._record.precon
        assert lower is not None
        assert lower.precon.machine.connector
        assert lower.precon.machine.kind is (Kind.PEER if first == 0 else Kind.ASK)


def test_only_what_is_used_is_connected() -> None:
    with world(6) as ranks:
        for rank in ranks:
            rank.peers[(rank.rank + 1) % 6].isend(b"on")
        for rank in ranks:
            rank.peers[(rank.rank - 1) % 6].recv(timeout=60)
        assert made(ranks) == 12


def test_a_call_works_where_the_caller_cannot_be_dialed() -> None:
    """The higher side's address is wrong, so only the higher side's call can connect the two."""
    with world(2) as ranks:
        ranks[0].peers[1]._record.address = "127.0.0.1:1"
        low = ranks[0].peers[1].isend(b"down")
        high = ranks[1].peers[0].isend(b"up")
        assert bytes(ranks[0].peers[1].recv(timeout=60)) == b"up"
        assert bytes(ranks[1].peers[0].recv(timeout=60)) == b"down"
        low.wait(60)
        high.wait(60)


def test_an_unreachable_peer_is_told_and_the_next_use_tries_again() -> None:
    with world(2, RETRY=1) as ranks:
        record = ranks[0].peers[1]._record
        right, record.address = record.address, "127.0.0.1:1"
        with pytest.raises(ConnectError, match="refused"):
            ranks[0].peers[1].send(b"x", timeout=60)
        assert ranks[0].peers[1].state is ConnectionState.LAZY
        record.address = right
        ranks[0].peers[1].send(b"y", timeout=60)
        assert bytes(ranks[1].peers[0].recv(timeout=60)) == b"y"


def test_refused_attempts_are_repeated_until_somebody_listens() -> None:
    with world(2) as ranks:
        record = ranks[0].peers[1]._record
        right, record.address = record.address, "127.0.0.1:1"
        sent = ranks[0].peers[1].isend(b"x")
        expect_soon(lambda: record.attempt is not None and record.attempt.timer is not None)
        record.address = right
        assert bytes(ranks[1].peers[0].recv(timeout=60)) == b"x"
        sent.wait(60)


def test_a_session_that_is_no_peer_is_refused() -> None:
    with world(2) as ranks, Peer(1, 2) as stranger:  # the stranger has the name of rank 1
        stranger.peers[0]._record.address = ranks[0].socket.address
        ranks[1].peers[0].open(60)
        with pytest.raises(ConnectError, match="in use"):
            stranger.peers[0].open(60)


def test_a_job_keeps_to_itself() -> None:
    with world(2) as ranks, Peer.__new__(Peer) as other:
        other._open("0009", {}, rank=9, job="another job")
        other.peers = [Connection(other._plain, other._new_record(rank=0, name="0000"))]
        other.peers[0]._record.address = ranks[0].socket.address
        with pytest.raises(ConnectError, match="no peer"):
            other.peers[0].open(60)
        ranks[1].peers[0].open(60)


def test_a_wrong_key_in_a_world() -> None:
    with world(1) as ranks, Peer(1, 2, KEY=ANOTHER_KEY) as other:
        other.peers[0]._record.address = ranks[0].socket.address
        with pytest.raises(AuthError, match="PSP_KEY"):
            other.peers[0].open(60)


def test_both_sides_open_from_many_threads() -> None:
    with world(2) as ranks:
        opened: list[None] = []

        def use(rank: int) -> None:
            ranks[rank].peers[1 - rank].open(60)
            opened.append(None)

        threads = [threading.Thread(target=use, args=(n % 2,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(opened) == 16
        assert made(ranks) == 2


def test_a_connection_with_oneself_needs_no_precon() -> None:
    with world(1) as (rank,):
        request = rank.peers[0].irecv()
        rank.peers[0].send(b"to myself", timeout=60)
        assert bytes(request.wait(60)) == b"to myself"
        assert (
            rank.peers[0].transport == "loop"
        )  # after the control thread has noted the connection
        assert rank.peers[0]._record.phase is Phase.UP
        assert rank.peers[0]._record.precon is None


def test_without_any_transport_it_fails_at_once_with_all_reasons() -> None:
    with world(2, SHM=0, TCP=0) as ranks:
        ranks[0].peers[1]._record.address = "192.0.2.1:1"  # an address that must not be dialed
        with pytest.raises(ConnectError) as caught:
            ranks[0].peers[1].open(60)
        assert ranks[0].peers[1]._record.attempt is None
        assert caught.value.candidates["shm"] == "excluded by PSP_SHM=0 (here)"
        assert caught.value.candidates["tcp"] == "excluded by PSP_TCP=0 (here)"
        assert "PSP_SHM=0" in str(caught.value)
        assert "PSP_TCP=0" in str(caught.value)
