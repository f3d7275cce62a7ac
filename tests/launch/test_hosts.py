"""`pscompy run` on several hosts, which are network namespaces of this machine."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pscompy
from pscompy.errors import ConfigError
from pscompy.launch.agent import Agent
from pscompy.launch.hosts import from_file, from_words, is_here, of_allocation, shares
from pscompy.launch.rank import Rank
from tests.gateway.namespaces import ip, why_no_namespaces
from tests.jobs import Launcher
from tests.launch.ranks import await_ready, check_signal, lines_until, notes, own_rank, say
from tests.waiting import expect_soon, state_of, stay

_numbers = itertools.count()

# ---- in a rank ----


def addresses():
    """The addresses of this process's namespace, other than the loopback's."""
    told = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True)
    found = [line.split()[3].partition("/")[0] for line in told.stdout.splitlines()]
    return [address for address in found if not address.startswith("127.")]


# ---- in the test ----


class Hosts(Launcher):
    """Hosts 10.99.0.1, 10.99.0.2 and so on, each of which is reached by `ip netns exec`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.prefix = f"psc{os.getpid()}h{next(_numbers)}"
        self.rsh = folder / "rsh"
        self.rsh.write_text(
            "#!/bin/sh\n# HOST COMMAND, as rsh has them\n"
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin  # as ssh, which passes no variable on\n"
            "host=$1; shift; exec env -i PATH=$PATH HOME=/ \\\n"
            f'ip netns exec {self.prefix}n"${{host##*.}}" sh -c "$*"\n'
        )
        self.rsh.chmod(0o755)

    def open(self, count: int) -> Hosts:
        hub = f"{self.prefix}hub"
        self.spaces = [hub, *(f"{self.prefix}n{number}" for number in range(1, count + 1))]
        for space in self.spaces:
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for number, space in enumerate(self.spaces[1:], 1):
            ip("-n", space, "link", "add", "net", "type", "veth", "peer", "name", f"n{number}",
               "netns", hub)  # fmt: skip
            ip("-n", hub, "link", "set", f"n{number}", "master", "bridge", "up")
            ip("-n", space, "addr", "add", f"10.99.0.{number}/24", "dev", "net")
            ip("-n", space, "link", "set", "net", "up")
        return self

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, "PSP_RSH": str(self.rsh)}

    def close(self) -> None:
        super().close()
        for space in getattr(self, "spaces", []):
            ip("netns", "del", space)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Hosts]:
    if reason := why_no_namespaces():
        pytest.skip(reason)
    with contextlib.closing(Hosts(tmp_path)) as hosts:
        # Enough for SIGTERM, however late an agent passes it on.
        yield hosts.open(2).having(GRACE=60.0)


BOTH = "10.99.0.1:2,10.99.0.2:2"


def test_ranks_of_two_hosts_are_one_world(two, script):
    def rings():
        with pscompy.World() as world:
            request = world.irecv(source=(world.rank - 1) % world.size)
            world.send(b"%d" % world.rank, dest=(world.rank + 1) % world.size)
            got, left = request.wait().decode(), (world.rank - 1) % world.size
            say(world.rank, world.size, got, world[left].transport, *addresses())

    done = two("--hosts", BOTH, "--env", "PSP_SHM=0", script(rings))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        "0 4 3 tcp 10.99.0.1",
        "1 4 0 tcp 10.99.0.1",
        "2 4 1 tcp 10.99.0.2",
        "3 4 2 tcp 10.99.0.2",
    ]


def test_the_key_of_a_job_is_that_of_all_hosts_and_in_no_command_line(two, script):
    def tells():
        key, found = os.environ["PSP_KEY"], False
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # the process has ended
                found |= key.encode() in path.read_bytes()
        say(key, found)

    first, second = (two("--hosts", BOTH, script(tells)).stdout.split("\n") for _ in range(2))
    assert len(set(first)) == len(set(second)) == 2  # four lines alike, and the end
    assert first[0].endswith(" False")
    assert first[0] != second[0]
    assert two("--hosts", BOTH, script(tells), env={"PSP_KEY": "mine"}).stdout.count("mine ") == 4


def test_a_hostfile_and_np(two, tmp_path, script):
    def prints():
        say(own_rank(), os.environ["MPI_LOCALRANKID"], os.environ["MPI_LOCALNRANKS"], *addresses())

    (tmp_path / "hosts").write_text("# two\n10.99.0.2 slots=2\n\n10.99.0.1:2  # one\n")
    done = two("--hostfile", tmp_path / "hosts", "-np", 3, script(prints))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        "0 0 2 10.99.0.2",
        "1 1 2 10.99.0.2",
        "2 0 1 10.99.0.1",
    ]


@pytest.mark.parametrize("system", ["SLURM", "PBS"])
def test_the_hosts_of_an_allocation(two, tmp_path, script, system):
    def prints():
        say(own_rank(), *addresses())

    (tmp_path / "nodes").write_text("10.99.0.1\n10.99.0.2\n10.99.0.2\n")
    env = {
        "SLURM": {"SLURM_JOB_NODELIST": "10.99.0.[1-2]", "SLURM_TASKS_PER_NODE": "1,2"},
        "PBS": {"PBS_NODEFILE": str(tmp_path / "nodes")},
    }[system]
    done = two(script(prints), env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["0 10.99.0.1", "1 10.99.0.2", "2 10.99.0.2"]


def test_output_input_and_labels_are_those_of_one_machine(two, script):
    def prints():
        data = sys.stdin.buffer.read()
        say("read", len(data), data[-9:].decode())
        sys.stderr.write("unfinished")

    done = two("--hosts", BOTH, "--label", script(prints), input="x" * 1_000_000 + "the end.\n")
    assert done.returncode == 0
    expected = ["[0] read 1000009 the end.", "[0] ", *(f"[{rank}] read 0 " for rank in (1, 2, 3))]
    assert sorted(done.stdout.splitlines()) == sorted(expected)
    assert sorted(done.stderr.splitlines()) == [f"[{rank}] unfinished" for rank in range(4)]


def test_much_output_arrives_whole(two, script):
    def prints():
        for number in range(3000):
            print(f"{own_rank()}:{number}:" + "x" * 500)

    lines = two("--hosts", BOTH, script(prints)).stdout.splitlines()
    for rank in "0123":
        mine = [line for line in lines if line.startswith(f"{rank}:")]
        assert mine == [f"{rank}:{number}:" + "x" * 500 for number in range(3000)]


@pytest.mark.parametrize(
    ("by", "code", "words"),
    [("exit", 7, "exited with code 7"), ("kill", 137, "was ended by SIGKILL"),
     ("abort", 5, "aborted the job with code 5")],
)  # fmt: skip
def test_a_rank_that_fails_ends_the_job_with_its_code(two, script, by, code, words):
    def fails(by):
        world = pscompy.World()
        if world.rank == 3 and by == "abort":
            world.abort(5)
        if world.rank == 3:
            sys.stderr.write("last words\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL) if by == "kill" else os._exit(7)
        stay()

    done = two("--hosts", BOTH, script(fails, by))
    said = f"pscompy run: rank 3 {words}; ending the others\n"
    assert done.stderr.startswith(said if by == "abort" else f"last words\n{said}")
    assert "pscompy run: ranks 0-" in done.stderr  # the summary
    assert done.returncode == code


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_signals_reach_the_ranks_of_all_hosts(two, script, name):
    check_signal(two.start("--hosts", BOTH, script(notes, name)), 4, name)


def test_the_ranks_of_all_hosts_dump(two, script):
    def waits():
        with pscompy.World() as world:
            world.recv(source=1 - world.rank, tag=7)

    hosts = "10.99.0.1,10.99.0.2"
    process = two.start("--hosts", hosts, "--label", "--dump-after", 1, script(waits))

    def all_have_dumped(lines):
        waited = [f"receive from rank {1 - rank}, tag 7  <- waited for" for rank in range(2)]
        own = [[it for it in lines if it.startswith(f"[{rank}] ")] for rank in range(2)]
        return all(waited[rank] in "\n".join(own[rank]) for rank in range(2))

    lines_until(process, all_have_dumped)
    assert process.poll() is None  # the dump has ended nobody


def processes_of(two, number):
    told = subprocess.run(["ip", "netns", "pids", f"{two.prefix}n{number}"], capture_output=True,
                          text=True, check=True)  # fmt: skip
    return list(map(int, told.stdout.split()))


def kill_at_once(processes):
    """Kill processes that are stopped first, so that none reports the end of another."""
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    expect_soon(lambda: all(state_of(pid) == "T" for pid in processes), "the stop")
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):  # the end of its parent has ended it
            os.kill(pid, signal.SIGKILL)


def test_a_host_that_dies_ends_the_job_with_its_name(two, script):
    def waits():
        say("ready")
        stay()

    process = two.start("--hosts", BOTH, script(waits))
    await_ready(process, 4)
    kill_at_once(processes_of(two, 2))
    err = process.communicate(timeout=100)[1]
    assert err == (
        "pscompy run: host 10.99.0.2 with rank 2, 3 is lost (its agent ended with -9);"
        " ending the others\n"
        "pscompy run: ranks 0-1 were ended by SIGTERM\n"
    )
    assert process.returncode == 1
    expect_soon(lambda: not processes_of(two, 1), "the end of the other host's ranks")


def test_no_rank_is_left_when_the_launcher_is_killed(two, script):
    def waits():
        say("ready")
        stay()

    process = two.start("--hosts", BOTH, script(waits))
    await_ready(process, 4)
    assert processes_of(two, 2)
    process.kill()
    expect_soon(lambda: not processes_of(two, 1) + processes_of(two, 2), "the end of all ranks")


def test_a_host_that_cannot_be_reached_is_named(two):
    done = two("--hosts", "10.99.0.1,10.99.0.9", "-c", "import signal; signal.pause()")
    assert done.returncode == 1
    way, ours, summary = done.stderr.splitlines()
    assert summary == "pscompy run: rank 0 was ended by SIGTERM"
    assert f"{two.prefix}n9" in way  # the error of `ip netns exec` names it
    assert "host 10.99.0.9 with rank 1 is lost (its agent ended with " in ours


def test_a_program_that_does_not_exist_there(two):
    done = two("--hosts", BOTH, "--", "no-such-command", env={"PATH": "/usr/sbin:/usr/bin:/bin"})
    assert done.returncode == 127
    assert "cannot start no-such-command: No such file or directory on host 10.99.0" in done.stderr


def test_a_program_is_found_by_the_path_of_the_launcher(two, tmp_path):
    tool = tmp_path / "bin" / "some-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho $WORD $PWD $PYTHONPATH\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tool.parent}:/usr/bin:/bin", "WORD": "word"}
    done = two("--hosts", BOTH, "--", "some-tool", env=env, cwd=tmp_path)
    path = two.environ["PYTHONPATH"]
    assert (done.stdout, done.stderr) == (f"word {tmp_path} {path}\n" * 4, "")


def test_an_mpi_program_knows_the_hosts(two, script):
    def counts():
        from mpi4py import MPI

        node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
        say(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, node.rank, node.size)

    pytest.importorskip("mpi4py", reason="no mpi4py: pip install mpi4py mpich")
    done = two("--hosts", "10.99.0.1:2,10.99.0.2:1", script(counts))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 3 0 2", "1 3 1 2", "2 3 0 1"]


# ---- without namespaces ----


@pytest.fixture
def way(tmp_path):
    """The environment in which the way to each host leads to this one."""
    rsh = tmp_path / "rsh"
    rsh.write_text('#!/bin/sh\nshift; exec sh -c "$*"\n')
    rsh.chmod(0o755)
    return {"PSP_RSH": str(rsh)}


def test_a_login_shell_that_prints(run, tmp_path):
    """The shell's lines, and one without an end, go before the records of the agent."""
    rsh = tmp_path / "rsh"
    rsh.write_text('#!/bin/sh\necho "[1] 4711"\nprintf "[note] "\nshift; exec sh -c "$*"\n')
    rsh.chmod(0o755)
    done = run("--hosts", "elsewhere", "--", "cat", input="a line\n", env={"PSP_RSH": str(rsh)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "a line\n", "")


def test_the_children_of_a_rank_that_has_ended_may_write(run, tmp_path, script, way):
    def outlived(folder):
        said, parent = Path(folder) / "said", os.getpid()
        if own_rank() == 1:
            expect_soon(said.exists)
        elif os.fork() == 0:
            expect_soon(lambda: os.getppid() != parent)
            time.sleep(1)  # the launcher learns of the end of rank 0
            say("late")
            said.touch()

    done = run("--hosts", "elsewhere:2", "--label", script(outlived, str(tmp_path)), env=way)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0] late\n", "")


def test_signals_reach_ranks_that_have_left_their_group(run, script, way):
    program = script(notes, "SIGINT", "setsid")
    check_signal(run.start("--hosts", "elsewhere:2", program, env=way), 2, "SIGINT")


def test_no_rank_that_has_left_its_group_outlives_the_launcher(run, script, way):
    def leaves():
        os.setsid()
        say(os.getpid())
        stay()

    process = run.start("--hosts", "elsewhere", script(leaves), env=way)
    pid = int(process.stdout.readline())
    process.kill()
    expect_soon(lambda: not Path(f"/proc/{pid}").exists(), "the end of the rank")


def test_a_way_that_hangs_is_given_up(run, way):
    """The second signal ends the way to a host whose agent does not answer."""
    Path(way["PSP_RSH"]).write_text("#!/bin/sh\necho begun >&2\nsleep 1000\n")
    process = run.having(_SAME=-1.0).start("--hosts", "elsewhere", "-c", "pass", env=way)
    assert process.stderr.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert "host elsewhere with rank 0 is lost" in process.communicate(timeout=100)[1]


def test_all_hosts_end_together(run, tmp_path):
    """The way to the first host ends after that to the second one; neither is killed."""
    rsh = tmp_path / "rsh"
    rsh.write_text(
        f'#!/bin/sh\ncd {tmp_path}\nhost=$1; shift; sh -c "$*"; touch $host\n'
        "while [ ! -e second ]; do sleep 0.1; done; touch $host-ended\n"
    )
    rsh.chmod(0o755)
    done = run("--hosts", "first,second", "-c", "pass", env={"PSP_RSH": str(rsh)})
    assert (done.returncode, done.stderr) == (0, "")
    assert {it.name for it in tmp_path.glob("*-ended")} == {"first-ended", "second-ended"}


def ends_a_rank_whose_output_goes_on():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    agent = Agent()
    zeros, nothing = (os.open(path, os.O_RDONLY) for path in ("/dev/zero", os.devnull))
    rank = agent._ranks[3] = Rank(3, 0, zeros, nothing, socket.socketpair()[0])
    agent._outputs = {zeros: (3, 1), nothing: (3, 2)}
    agent._end(rank, 0)
    assert list(agent._outputs) == [zeros]


def test_the_end_of_a_rank_whose_children_go_on_writing(script):
    command = [sys.executable, script(ends_a_rank_whose_output_goes_on)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("rsh", "complaint"),
    [("ssh 'unfinished", 'PSP_RSH="ssh \'unfinished": No closing quotation'), (" ", "PSP_RSH=''")],
)
def test_a_way_that_is_no_command(run, rsh, complaint):
    done = run("--hosts", "elsewhere", "-c", "pass", env={"PSP_RSH": rsh})
    assert done.returncode == 2
    assert complaint in done.stderr


# ---- names ----


def test_this_host_needs_no_way_to_it(run):
    own = socket.gethostname()
    env = {"PSP_RSH": "/nowhere"}
    done = run("--hosts", f"localhost,{own},127.0.0.1", "--", "sh", "-c", "echo $PMI_RANK", env=env)
    assert (sorted(done.stdout.split()), done.stderr) == (["0", "1", "2"], "")
    assert is_here(own)
    assert is_here("::1")
    assert not is_here("elsewhere")


@pytest.mark.parametrize(
    ("environ", "slots"),
    [
        ({}, {}),
        ({"SLURM_JOB_ID": "7"}, {}),
        ({"SLURM_JOB_NODELIST": "n1"}, {"n1": 1}),
        ({"SLURM_JOB_NODELIST": "n1", "PBS_NODEFILE": ""}, {"n1": 1}),
        (
            {"SLURM_JOB_NODELIST": "n[08-10,3],x", "SLURM_TASKS_PER_NODE": "2(x3),1,4"},
            {"n08": 2, "n09": 2, "n10": 2, "n3": 1, "x": 4},
        ),
        (
            {"SLURM_JOB_NODELIST": "r[1-2]n[1-2]-ib", "SLURM_TASKS_PER_NODE": "8(x4)"},
            {"r1n1-ib": 8, "r1n2-ib": 8, "r2n1-ib": 8, "r2n2-ib": 8},
        ),
    ],
)
def test_the_list_of_slurm(environ, slots):
    assert of_allocation(environ) == slots


@pytest.mark.parametrize("part", ["1-3:2", "a", "", "1-"])
def test_a_list_of_slurm_that_is_none(part):
    with pytest.raises(ConfigError, match="SLURM_JOB_NODELIST"):
        of_allocation({"SLURM_JOB_NODELIST": f"n[{part}]"})


def test_ranks_fill_hosts_in_turn_beyond_their_slots():
    slots = from_words(["a:2", "b"])
    assert shares(slots, None) == [("a", 0, 2), ("b", 2, 1)]
    assert shares(slots, 1) == [("a", 0, 1)]
    assert shares(slots, 5) == [("a", 0, 4), ("b", 4, 1)]
    assert shares({}, 5) == []
    assert from_words(["[::1]:2", "b", "b:2"]) == {"::1": 2, "b": 3}


@pytest.mark.parametrize(
    ("slots", "size"),
    [
        (from_words(["a:2000000"]), None),
        ({}, 2000000),
    ],
)
def test_more_ranks_than_a_job_may_have(slots, size):
    with pytest.raises(ConfigError, match="a job may have 1048576"):
        shares(slots, size)


def test_an_allocation_of_more_hosts_than_a_job_may_have():
    slots = of_allocation({"SLURM_JOB_NODELIST": "n[1-1000000]m[1-2]"})
    with pytest.raises(ConfigError, match="a job may have 1048576"):
        shares(slots, None)


@pytest.mark.parametrize("text", ["a:0", "a:x", "", "a b", ":2", "-oProxyCommand=sh"])
def test_a_host_that_is_none(text):
    with pytest.raises(ConfigError, match="is not HOST or HOST:RANKS"):
        from_words([text])


def test_a_hostfile_without_hosts(tmp_path):
    with pytest.raises(ConfigError, match=r"--hostfile .*No such file"):
        from_file(tmp_path / "none")
    (tmp_path / "latin").write_bytes(b"\xe9\n")
    with pytest.raises(ConfigError, match=r"--hostfile .*is not a text"):
        from_file(tmp_path / "latin")
    with pytest.raises(ConfigError, match=r"PBS_NODEFILE .*No such file"):
        of_allocation({"PBS_NODEFILE": str(tmp_path / "none")})
    (tmp_path / "wrong").write_text("a slots=2 max_slots=4\n\nb slot=2\n")
    with pytest.raises(ConfigError, match=r"--hostfile .*wrong, line 3: 'b slot=2' is not HOST"):
        from_file(tmp_path / "wrong")
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(ConfigError, match="names no host"):
        from_file(tmp_path / "empty")
