"""PMI-1: our client and our server, each against MPICH's and against each other."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from pscompy.api.c.guard import inside
from pscompy.errors import ConfigError, ConnectError, PeerLost, ProtocolError, Timeout
from pscompy.world.bootstrap import Pmi1, Single, detect
from pscompy.world.bootstrap.pmi1_server import Abort, Server
from pscompy.world.bootstrap.pmi1_wire import LineBuffer, WireError, pack, parse
from tests.waiting import expect_soon, stay

NO_MPI = "no mpi4py: pip install mpi4py mpich"


def exchanges():
    me = detect()
    me.put(f"address-{me.rank}", f"{me.rank}:" + "a=b;c," * 900)
    me.put(f"short-{me.rank}", "")
    me.barrier()
    for rank in range(me.size):
        assert me.get(f"address-{rank}", rank) == f"{rank}:" + "a=b;c," * 900
        assert me.get(f"short-{rank}", rank) == ""
    try:
        me.get("nothing", 0)
    except KeyError as error:
        print(me.rank, me.size, me.job_id, error, flush=True)
    me.barrier(timeout=100)
    me.finalize()


def asks_in_barrier():
    me, told = detect(), Path(__file__).with_name("told")
    me.put(f"key-{me.rank}", "value")
    me.barrier()
    if me.rank == 0:
        thread = threading.Thread(target=me.barrier)
        thread.start()
        for _ in range(100):
            assert me.get(f"key-{me.size - 1}", me.size - 1) == "value"
        me.put("asked", "yes")
        told.touch()
        print("asked", flush=True)
        thread.join(100)
        assert not thread.is_alive()
    else:
        expect_soon(told.exists)
        me.barrier()
        assert me.get("asked", 0) == "yes"
    me.finalize()


def times_out():
    me, told = detect(), Path(__file__).with_name("told")
    if me.rank == 0:
        try:
            me.barrier(timeout=0.2)
        except Timeout:
            print("timeout", flush=True)
        me.put("late", "value")
        told.touch()
    else:
        expect_soon(told.exists)
    me.barrier(timeout=100)
    assert me.get("late", 0) == "value"
    me.finalize()


@pytest.fixture(params=["pscompy", "mpiexec", "mpiexec -pmi-port"])
def launch(request):
    """Every launcher with PMI-1, in each of its ways to offer it."""
    name = request.param
    if name == "pscompy":
        return request.getfixturevalue("run")
    launcher = request.getfixturevalue("mpiexec")
    launcher.command += tuple(name.split()[1:])
    return launcher


def launched(launch, n, program):
    return launch("-n", n, *launch.python(program))


def start(launch, n, program):
    done = launched(launch, n, program)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


def test_values_of_all_ranks_are_exchanged(launch, script):
    lines = start(launch, 3, script(exchanges))
    jobs = {line.split()[2] for line in lines}
    assert len(jobs) == 1
    assert lines == [f"{rank} 3 {next(iter(jobs))} 'nothing'" for rank in range(3)]


def test_values_are_got_while_another_thread_is_in_the_barrier(launch, script):
    assert start(launch, 2, script(asks_in_barrier)) == ["asked"]


def test_a_barrier_that_timed_out_is_gone_on_with(launch, script):
    assert start(launch, 2, script(times_out)) == ["timeout"]


def test_abort_ends_all_ranks(launch, script):
    def aborts():
        me = detect()
        if me.rank == 1:
            me.abort(5)
        stay()

    done = launched(launch, 3, script(aborts))
    assert done.returncode == 5
    if "pscompy" in launch.command:
        assert done.stderr == (
            "pscompy run: rank 1 aborted the job with code 5; ending the others\n"
            "pscompy run: ranks 0-2 were ended by SIGTERM\n"
        )


def test_abort_counts_though_the_rank_ends_at_once(run, script):
    def aborts():
        me = detect()
        if me.rank == 1:
            me.abort(5)
            os._exit(0)
        me.barrier()

    assert run("-n", 2, script(aborts)).returncode == 5


def test_nobody_waits_for_a_rank_that_has_left(run, script):
    def leaves():
        me = detect()
        if me.rank == 2:
            sys.exit(0)
        try:
            me.barrier()
        except PeerLost as error:
            print(error)

    done = run("-n", 3, script(leaves))
    assert done.stdout == "barrier of all ranks: rank 2 has left\n" * 2
    assert done.returncode == 0


def test_an_mpi_program_runs_under_pscompy_run(run, script):
    def reduces():
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        total = world.allreduce(world.rank)
        node = world.Split_type(MPI.COMM_TYPE_SHARED)
        print(world.rank, world.size, total, node.size)

    pytest.importorskip("mpi4py", reason=NO_MPI)
    done = run("-n", 4, script(reduces))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} 4 6 4" for rank in range(4)]


def test_mpi_abort_ends_the_job(run, script):
    def aborts():
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 1:
            MPI.COMM_WORLD.Abort(9)
        MPI.COMM_WORLD.Barrier()

    pytest.importorskip("mpi4py", reason=NO_MPI)
    done = run("-n", 3, script(aborts))
    assert done.returncode == 9
    assert "rank 1 aborted the job with code 9" in done.stderr


def test_a_rank_that_sends_nonsense_ends_the_job(run, script):
    def sends_nonsense():
        if os.environ["PMI_RANK"] == "1":
            os.write(int(os.environ["PMI_FD"]), b"\xff\n")
        stay()

    done = run("-n", 2, script(sends_nonsense))
    assert done.returncode == 1
    assert "rank 1 speaks no PMI-1" in done.stderr


# ---- the server alone ----


def answer(server, rank, line):
    replies = server.receive(rank, line)
    assert [r for r, _ in replies] == [rank]
    return parse(replies[0][1])


def test_the_barrier_opens_when_the_last_rank_comes():
    server = Server([3], "job")
    assert server.receive(2, b"cmd=barrier_in") == []
    assert server.receive(0, b"cmd=barrier_in") == []
    assert server.receive(1, b"cmd=barrier_in") == [(r, b"cmd=barrier_out\n") for r in range(3)]
    assert server.receive(1, b"cmd=barrier_in") == []


def test_those_in_the_barrier_hear_of_a_rank_that_leaves():
    server = Server([3], "job")
    server.receive(0, b"cmd=barrier_in")
    assert [rank for rank, _ in server.leave(1)] == [0]
    assert answer(server, 2, b"cmd=barrier_in") == (
        "barrier_out",
        {"rc": "-1", "msg": "rank_1_has_left"},
    )


def test_what_is_not_supported_is_refused():
    server = Server([1], "job")
    for line in (b"mcmd=spawn", b"nprocs=1", b"execname=a b", b"cmd=abort"):
        assert server.receive(0, line) == []
    assert answer(server, 0, b"endcmd")[0] == "spawn_result"
    assert answer(server, 0, b"cmd=lookup_name service=x")[1]["rc"] == "-1"
    assert answer(server, 0, b"cmd=something")[1]["rc"] == "-1"
    assert answer(server, 0, b"cmd=init pmi_version=2 pmi_subversion=0")[1]["rc"] == "-1"


@pytest.mark.parametrize(
    "line",
    [
        b"cmd=put",
        b"cmd=put key= value=x",
        b"cmd=put key=" + b"k" * 64 + b" value=x",
        b"cmd=put key=k value=" + b"v" * 1024,
        b"cmd=put key=k value=back\\slash",
        "cmd=put key=k value=\N{LATIN SMALL LETTER E WITH ACUTE}".encode(),
    ],
)
def test_puts_beyond_the_limits_are_refused(line):
    server = Server([1], "job")
    assert answer(server, 0, line)[1]["rc"] == "-1"
    assert answer(server, 0, b"cmd=get key=k")[1]["rc"] == "-1"


@pytest.mark.parametrize(
    ("text", "code"), [(b"exitcode=3", 3), (b"exitcode=x", 1), (b"exitcode=--5", 1), (b"", 1)]
)
def test_abort_carries_its_code(text, code):
    with pytest.raises(Abort) as caught:
        Server([2], "job").receive(1, b"cmd=abort " + text)
    assert (caught.value.rank, caught.value.code) == (1, code)


# ---- the format of values ----


@pytest.mark.parametrize("value", ["", "two words", "line\nbreak", "back\\slash", "é", " x"])
def test_values_that_cannot_travel_are_refused(value):
    with pytest.raises(ValueError, match="cannot be sent"):
        pack("put", value=value)


@pytest.mark.parametrize("line", [b"", b"key=value", b"\xff\xfe", b"cmd=", b"cmd"])
def test_lines_without_a_command_are_refused(line):
    with pytest.raises(WireError):
        parse(line)


def test_lines_are_put_together_from_pieces():
    buffer = LineBuffer()
    text = b"".join(pack("put", key=f"k{i}", value="v=" * i + "v") for i in range(50))
    lines = [line for i in range(0, len(text), 7) for line in buffer.feed(text[i : i + 7])]
    assert [parse(line)[1]["value"] for line in lines] == ["v=" * i + "v" for i in range(50)]


def test_a_line_without_end_is_refused():
    buffer = LineBuffer()
    assert buffer.feed(b"x" * 60000) == []
    with pytest.raises(WireError):
        buffer.feed(b"x" * 60000)


# ---- the choice of the bootstrap ----


def test_no_launcher_means_rank_0_of_1():
    alone = detect({"SLURM_JOB_ID": "7", "PATH": "/bin"})
    assert isinstance(alone, Single)
    assert (alone.rank, alone.size) == (0, 1)
    alone.put("key", "value")
    alone.barrier()
    assert alone.get("key", 0) == "value"
    assert alone.job_id != detect({}).job_id


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}, "4 tasks, and.*no PMI.*--mpi=pmi2"),
        ({"PMI_FD": "989", "PMI_RANK": "0", "PMI_SIZE": "2"}, "not open here"),
        ({"PMI_FD": "0x", "PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI_FD='0x'"),
        ({"PMI_PORT": "localhost", "PMI_ID": "0"}, "PMI_PORT='localhost'"),
        ({"PMI_PORT": "localhost:1"}, "PMI_ID=None"),
    ],
)
def test_launchers_that_cannot_be_used_are_named(environ, complaint):
    with pytest.raises(ConfigError, match=complaint):
        detect(environ)


def test_a_port_where_nobody_listens():
    with pytest.raises(ConnectError, match="localhost:1: "):
        detect({"PMI_PORT": "localhost:1", "PMI_ID": "0"})


# ---- a launcher that is slow or dies ----


class Link:
    """A server at one end of a socket; it answers only when `answer` is called."""

    def __init__(self):
        self.theirs, self.ours = socket.socketpair()
        self.ours.settimeout(100)
        self.server = Server([1], "job")
        self.lines = LineBuffer()

    def answer(self, count):
        """Answer the next `count` questions."""
        while count:
            for line in self.lines.feed(self.ours.recv(4096)):
                for _, reply in self.server.receive(0, line):
                    self.ours.sendall(reply)
                count -= 1

    def client(self):
        thread = threading.Thread(target=self.answer, args=(3,))
        thread.start()
        client = Pmi1(self.theirs.fileno(), 0, 1)
        thread.join()
        return client


@pytest.fixture
def link():
    link = Link()
    with link.theirs, link.ours:
        yield link


def test_an_answer_that_comes_too_late_is_not_taken_for_another(link, monkeypatch):
    client = link.client()
    link.server.receive(0, b"cmd=put key=first value=1:one")
    link.server.receive(0, b"cmd=put key=second value=1:two")
    with monkeypatch.context() as patch:
        patch.setattr(Pmi1._exchange, "__defaults__", (0.05,))  # in place of _REPLY_TIMEOUT
        with pytest.raises(Timeout):
            client.get("first", 0)
    thread = threading.Thread(target=link.answer, args=(2,))
    thread.start()
    assert client.get("second", 0) == "two"
    thread.join()
    client._socket.close()


class Interrupted(Exception):
    """Raised by the handler of a signal."""


def interrupted(number, call):
    """Whether the call was interrupted when it had called `number` functions in Python, where
    Python runs the handlers of signals."""
    left = iter(range(number))

    def trace(frame, event, arg):
        if next(left, None) is None:
            sys.settrace(None)
            raise Interrupted

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_signal_leaves_no_lock_and_no_reader():
    for number in range(100):
        link = Link()
        with link.theirs, link.ours:
            client = link.client()
            link.ours.sendall(pack("put_result", rc=0))
            again = interrupted(number, lambda client=client: client.put("key", "value"))
            assert not inside(), number
            assert client._reader is None, number
            client._socket.close()
        if not again:
            break
    assert number > 10


@pytest.mark.parametrize(
    ("limits", "name", "complaint"),
    [("keylen_max=64", "kvsname=job", "answered without vallen_max"),
     ("keylen_max=many vallen_max=9", "kvsname=job", "keylen_max=many, no number"),
     ("keylen_max=64 vallen_max=1024", "kvs=job", "answered without kvsname"),
     ("keylen_max=64 vallen_max=1024", "kvsname=", "answered without kvsname")],
)  # fmt: skip
def test_an_answer_without_what_was_asked_for_names_the_launcher(link, limits, name, complaint):
    def answer():
        for line in ("response_to_init rc=0", f"maxes {limits}", f"my_kvsname {name}"):
            if link.ours.recv(4096):
                link.ours.sendall(f"cmd={line}\n".encode())

    threading.Thread(target=answer, daemon=True).start()
    with pytest.raises(ProtocolError, match=f"the launcher.*{complaint}") as caught:
        Pmi1(link.theirs.fileno(), 0, 1)
    assert caught.value.peer == "launcher"


@pytest.mark.parametrize("value", ["[Infinity,0,0,[],%22%22]", "[0,0,0,[1e999],%22%22]", "[", "-"])
def test_a_wait_that_is_none_is_not_read(value):
    server = Server([1], "job")
    server.receive(0, f"cmd=put key=pscompy.wait.0 value=1:{value}".encode())
    assert server.wait_of(0) == ""


def test_a_launcher_that_dies_is_noticed_by_all_who_wait(link):
    client = link.client()
    errors = []

    def wait():
        with pytest.raises(PeerLost) as caught:
            client.barrier()
        errors.append(str(caught.value))

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    link.ours.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(100)
    assert errors == ["the launcher is gone"] * 2
    with pytest.raises(PeerLost):
        client.get("key", 0)
    client._socket.close()


class Noted:
    """A `Follower` that keeps the numbers of the ranks that have ended."""

    def __init__(self):
        self.ranks = []

    def note(self, end):
        self.ranks.append(end.rank)


@pytest.fixture
def following(link):
    """A link whose client follows the ends of ranks, and the client with its follower."""
    link.server = Server([3], "pscompy-job")
    client, noted = link.client(), Noted()
    os.close(client.follow(noted, 0))
    link.answer(1)
    yield link, client, noted
    client._socket.close()


def test_an_end_that_is_reported_twice_is_noted_once(following):
    link, client, noted = following

    def end(rank):
        for _, line in link.server.end(rank, 0):
            link.ours.sendall(line)

    end(1)
    os.close(client.follow(noted, 1))  # the request and the report cross
    link.answer(1)
    assert client.read_reports()
    link.answer(2)
    end(2)
    assert client.read_reports()
    assert noted.ranks == [1, 2]


def test_a_report_that_is_malformed_ends_the_reports_and_is_logged(following, caplog):
    link, client, _ = following
    link.ours.sendall(b"cmd=ends until=1 list=nonsense\n")
    assert not client.read_reports()
    assert "the launcher sent 'nonsense' is no end of a rank" in caplog.text
