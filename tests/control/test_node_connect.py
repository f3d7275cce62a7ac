"""Ranks of one node that call each other, and everything that makes them use a precon."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from peers import Peer

from pscompy import Closed, ConnectError, Connection, ConnectionState, Session
from pscompy.control.datagrams import Datagrams
from pscompy.control.handshake.identity import Identity
from pscompy.control.manager import Control
from pscompy.control.node_connect import NodeConnect
from pscompy.control.peer import Record
from pscompy.control.phases import Phase
from tests.program import program
from tests.waiting import expect_soon

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for sockets, whose names are short."""
    with tempfile.TemporaryDirectory(prefix="psp") as made:
        yield Path(made)


class Neighbour(Peer):
    """A rank that asks for the addresses of others only if it needs them."""

    def __init__(self, rank: int, size: int, job: str, config: Mapping[str, object]) -> None:
        self.rank = rank
        self.asked: list[int] = []
        self._open(f"{rank:04}", config, rank, job, self._find)
        self.peers = [self._lazy(other) for other in range(size)]
        self.socket = self.listen("127.0.0.1")

    def _find(self, there: Identity) -> Record | None:
        return self.peers[there.rank]._record if there.rank < len(self.peers) else None

    def _lazy(self, other: int) -> Connection:
        def resolve() -> str:
            self.asked.append(other)
            return self.others[other].socket.address

        record = self._new_record(rank=other, name=f"{other:04}", resolve=resolve)
        return Connection(self._plain, record)

    @property
    def datagrams(self) -> Datagrams:
        return self._control._node_connects._datagrams


def new_job() -> str:
    return f"{os.getpid()}-{os.urandom(4).hex()}"


@contextmanager
def node(
    *configs: Mapping[str, object],
    job: str = "",
    first: int = 0,
    then: Callable[[], object] = lambda: None,
    late: int = 1,
) -> Iterator[list[Neighbour]]:
    """One rank for each configuration, from `first` on. `then` is called before the `late` one
    opens."""
    job = job or new_job()
    ranks: list[Neighbour] = []
    for config in configs:
        if len(ranks) == late:
            then()
        ranks.append(Neighbour(first + len(ranks), first + len(configs), job, config))
    for rank in ranks:
        rank.others = {it.rank: it for it in ranks}
    try:
        yield ranks
    finally:
        closing = [threading.Thread(target=rank.close) for rank in ranks]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()


def exchange(a: Neighbour, b: Neighbour) -> None:
    """A message in each direction; both may begin."""
    sent = [a.peers[b.rank].isend(b"to b"), b.peers[a.rank].isend(b"to a")]
    assert bytes(b.peers[a.rank].recv(timeout=60)) == b"to b"
    assert bytes(a.peers[b.rank].recv(timeout=60)) == b"to a"
    for request in sent:
        request.wait(60)


def place(base: Path) -> Path:
    """The name by which the ranks of the only job below this folder find the file they share."""
    (found,) = base.glob("pscompy-*/node*")
    return found


def inbox(rank: int) -> int:
    """The place of a rank's inbox in the file."""
    return (1 + rank) * mmap.PAGESIZE


def copy_node_file(name: Path) -> int:
    """Let this name lead to an unused copy of the file. Returns a descriptor of the file."""
    file = os.open(name, os.O_RDWR)
    copy = os.memfd_create("copy", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(copy, os.fstat(file).st_size)
    os.write(copy, os.pread(file, mmap.PAGESIZE, 0))
    fcntl.fcntl(copy, fcntl.F_ADD_SEALS, SEALS)
    name.unlink()
    name.symlink_to(f"/proc/{os.getpid()}/fd/{copy}")
    return file


def linked(a: Neighbour, b: Neighbour) -> bool:
    """Whether their connection has a precon."""
    assert a.peers[b.rank].transport
    return not isinstance(a.peers[b.rank]._record.precon, NodeConnect)


@pytest.mark.parametrize("rounds", range(10))
def test_neighbours_need_neither_a_precon_nor_an_address(rounds):
    with node({}, {}, {}) as ranks:
        exchange(ranks[0], ranks[1])
        exchange(ranks[2], ranks[1])
        assert [rank.asked for rank in ranks] == [[], [], []]
        assert not linked(ranks[0], ranks[1])
        assert not linked(ranks[1], ranks[2])
        assert [rank.stats["connections_up"] for rank in ranks] == [1, 2, 1]
        assert "over shm" in str(ranks[0].peers[1].explain())
        assert "tcp: not needed" in str(ranks[1].peers[0].explain())


def test_the_first_message_calls_a_rank_of_the_node_without_the_control_plane(monkeypatch):
    begun = []
    monkeypatch.setattr(Control, "begin_open", lambda *args: begun.append(args))
    with node({}, {}) as ranks:
        exchange(*ranks)
    assert begun == []


def test_a_connection_that_comes_up_by_a_call_is_not_begun_again():
    """Neither by a second thread, nor by one that finds it lazy just before the peer calls."""
    with node({}, {}) as ranks:
        for _ in range(2):
            ranks[0].peers[1]._begin_open()
        exchange(*ranks)
        ranks[1].peers[0].open(60)
        assert [rank.asked for rank in ranks] == [[], []]
        assert not linked(*ranks)
        assert not linked(*ranks[::-1])


def test_each_side_knows_the_identity_of_the_other():
    with node({}, {}) as ranks:
        exchange(*ranks)
        for a, b in (ranks, ranks[::-1]):
            assert a.peers[b.rank].peer == str(b._identity)


def test_ranks_with_other_identities_are_connected_over_a_precon(monkeypatch):
    """Those find each other that have everything but their names in common."""
    hostnames = iter(("one", "two", "two"))
    monkeypatch.setattr(socket, "gethostname", lambda: next(hostnames))
    with node({}, {}, {}) as ranks:
        for a, b in ((0, 1), (1, 2)):
            exchange(ranks[a], ranks[b])
        assert linked(ranks[0], ranks[1])
        assert not linked(ranks[1], ranks[2])


def test_the_control_plane_notes_a_call_when_somebody_asks():
    """Each connection that it notes takes processor time of both ranks."""
    config = {"CANDIDATE_TIMEOUT": "inf"}  # so that it does not look for late ones
    with node(config, config) as ranks:
        exchange(*ranks)
        records = [a.peers[b.rank]._record for a, b in (ranks, ranks[::-1])]
        assert [record.phase for record in records] == [Phase.LAZY, Phase.LAZY]
        assert ranks[0].peers[1].transport == "shm"
        assert "UP over shm" in ranks[1].dump()
        assert [record.phase for record in records] == [Phase.UP, Phase.UP]


@pytest.mark.parametrize("first", [0, 1])
def test_one_rank_begins(first):
    with node({}, {}) as ranks:
        ranks[first].peers[1 - first].send(b"hello", timeout=60)
        assert bytes(ranks[1 - first].peers[first].recv(timeout=60)) == b"hello"
        assert not linked(*ranks)


def test_a_rank_without_the_transport_of_the_node_is_connected_over_a_precon():
    with node({}, {"SHM": 0}) as ranks:
        exchange(*ranks)
        assert linked(*ranks)
        assert ranks[0].peers[1].transport == "tcp"


def test_a_lane_that_fails_is_replaced_over_a_precon():
    """Forced cross-memory attach fails with a peer that has none; then another transport is
    tried."""
    with node({"SHM_CMA": "1"}, {"SHM_CMA": "0"}) as ranks:
        exchange(*ranks)
        assert linked(*ranks)
        assert ranks[0].peers[1].transport == "tcp"


def test_a_rank_that_does_not_answer_in_time_is_connected_over_a_precon(folder):
    config = {"CANDIDATE_TIMEOUT": "0.2", "SHM_DIR": str(folder)}
    files = []
    with node(config, config, then=lambda: files.append(copy_node_file(place(folder)))) as ranks:
        copy = os.open(place(folder), os.O_RDWR)
        # an inbox of rank 1 that it does not read
        os.pwrite(files[0], os.pread(copy, mmap.PAGESIZE, inbox(1)), inbox(1))
        ranks[0].peers[1].send(b"hello", timeout=60)
        assert bytes(ranks[1].peers[0].recv(timeout=60)) == b"hello"
        assert linked(*ranks)
    for file in (*files, copy):
        os.close(file)


@pytest.mark.parametrize("instead", [None, "/dev/null", "/proc/1/fd/99999"])
def test_ranks_that_share_no_file_are_connected_over_a_precon(folder, instead):
    """The second rank finds no file under the name, or one that no rank of the job has made, so it
    makes one of its own."""
    config = {"SHM_DIR": str(folder)}

    def hide() -> None:
        name = place(folder)
        name.unlink()
        if instead is not None:
            name.symlink_to(instead)

    with node(config, config, config, then=hide) as ranks:
        exchange(ranks[0], ranks[1])
        exchange(ranks[1], ranks[2])
        assert linked(*ranks[:2])
        assert not linked(*ranks[1:])


def open_rank(job: str, folder: str) -> None:
    """Be rank 0 until the input ends."""
    with Session._of_job("0000", {"SHM_DIR": folder}, 0, job, lambda _: None) as session:
        session.listen("127.0.0.1")
        print("open", flush=True)
        sys.stdin.read()


@pytest.mark.parametrize("end", [subprocess.Popen.kill, subprocess.Popen.communicate])
def test_ranks_need_the_one_that_made_their_file_no_more(folder, end):
    """It is killed, or leaves, before two others connect. One that opens later than that makes
    another file."""
    job, config = new_job(), {"SHM_DIR": str(folder)}
    command = [sys.executable, "-c", program(open_rank, job, str(folder))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}

    def leave() -> None:
        end(maker)
        maker.wait(60)

    with subprocess.Popen(command, **pipes) as maker:
        assert maker.stdout.readline() == b"open\n"
        with node(config, config, config, job=job, first=1, then=leave, late=2) as ranks:
            exchange(ranks[0], ranks[1])
            exchange(ranks[1], ranks[2])
            assert not linked(*ranks[:2])
            assert linked(*ranks[1:])
    assert not list(folder.glob("pscompy-*/node*"))


@pytest.mark.parametrize("first", [{"SHM": 0}, {"SHM_CMA": "1"}], ids=["no call", "failed call"])
def test_a_connection_is_given_up_if_no_precon_can_be_made(monkeypatch, first):
    """The part that makes precons is imported late. If that fails, the next use tries again."""
    with node(first, {"SHM_CMA": "0"}) as ranks:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "pscompy.control.ondemand", None)
            with pytest.raises(ConnectError, match=r"no precon can be made: .*ondemand"):
                ranks[0].peers[1].open(60)
        exchange(*ranks)
        assert linked(*ranks)


def test_who_spoils_a_board_connects_nothing(folder):
    """All ranks seem to call: the rank itself, the other one, and thousands that do not exist."""
    config = {"SHM_DIR": str(folder)}
    with node(config, config) as ranks:
        with place(folder).open("r+b") as file:
            board = mmap.mmap(file.fileno(), mmap.PAGESIZE, offset=inbox(1))
            board[0:640] = b"\xff" * 640  # sizeof(shm_board_t)
            assert ranks[1].progress() >= 0
            exchange(*ranks)
            board.close()
        assert [rank.stats["connections_up"] for rank in ranks] == [1, 1]


def test_datagrams_of_strangers_are_dropped():
    with node({}, {}) as ranks:
        exchange(*ranks)
        name = ranks[1].datagrams._name(1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            for data in (b"", b"x", bytes(36), bytes(500), os.urandom(36)):
                stranger.sendto(data, name)
        ranks[0].peers[1].close()
        expect_soon(lambda: ranks[1].peers[0].state is ConnectionState.CLOSED)


def test_the_core_reports_no_state_that_the_control_plane_has_set():
    with node({}, {}) as ranks:
        connections, reported = ranks[0]._control._connections, []
        on_core_event = connections.on_core_event

        def noting(conn_id: int) -> None:
            reported.append(ranks[0].peers[1].state)
            on_core_event(conn_id)

        connections.on_core_event = noting
        exchange(*ranks)
        ranks[0].peers[1].close()
        expect_soon(lambda: ConnectionState.CLOSED in reported)
        assert {ConnectionState.CONNECTING, ConnectionState.UP}.isdisjoint(reported)


@pytest.mark.parametrize("closes", [0, 1])
def test_a_close_reaches_a_peer_that_makes_no_call(closes):
    with node({}, {}) as ranks:
        exchange(*ranks)
        ranks[closes].peers[1 - closes].close()
        other = ranks[1 - closes].peers[closes]
        expect_soon(lambda: other.state is ConnectionState.CLOSED)
        with pytest.raises(Closed):
            other.send(b"too late")


def test_a_connection_that_was_closed_here_is_refused_with_its_reason():
    with node({}, {}) as ranks:
        ranks[1].peers[0].close()
        expect_soon(lambda: ranks[1].peers[0].state is ConnectionState.CLOSED)
        with pytest.raises(Exception, match="has closed this connection"):
            ranks[0].peers[1].open(60)


def test_a_rank_that_has_ended_is_not_reached():
    with node({}, {}) as ranks:
        ranks[1].close()
        with pytest.raises(Exception, match="refused"):
            ranks[0].peers[1].open(60)


def test_many_begin_at_once():
    """The queue of a datagram socket has room for few."""
    with node(*[{}] * 24) as ranks:
        sent = [rank.peers[0].isend(b"%d" % rank.rank) for rank in ranks[1:]]
        for rank in ranks[1:]:
            assert bytes(ranks[0].peers[rank.rank].recv(timeout=60)) == b"%d" % rank.rank
        for request in sent:
            request.wait(60)
        assert not any(linked(ranks[0], rank) for rank in ranks[1:])
