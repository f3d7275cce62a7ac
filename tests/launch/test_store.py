"""Ranks that torchrun or any scheduler numbers: our own store, its key, and who is refused."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import resource
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest

import pscompy
from pscompy.config.config import Config
from pscompy.config.variables import VARIABLES
from pscompy.control.handshake.keys import find_key
from pscompy.control.precon_options import PreconOptions
from pscompy.errors import AuthError, ConfigError, ConnectError, Timeout
from pscompy.world.bootstrap import Single, attach, detect
from pscompy.world.bootstrap.membership import Membership, port_beside
from pscompy.world.bootstrap.pmi1_wire import pack
from pscompy.world.bootstrap.store import _prove, _reach
from pscompy.world.bootstrap.store_server import Store
from tests.jobs import TIMEOUT
from tests.names import A_KEY, ANOTHER_KEY
from tests.waiting import expect_soon, idles, own_use, stay


def rings():
    with pscompy.World() as world:
        request = world.irecv(source=(world.rank - 1) % world.size)
        world.send(b"%d" % world.rank, dest=(world.rank + 1) % world.size)
        sys.stdout.write(f"{world.rank} of {world.size} got {request.wait().decode()}\n")


RING = ["0 of 3 got 2", "1 of 3 got 0", "2 of 3 got 1"]


def free_port():
    """A free port below those that the kernel gives to sockets of other tests meanwhile."""
    while True:
        port = random.randrange(0x4000, 0x8000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@pytest.fixture
def start(run):
    """Starts a program with variables, as a scheduler does; the key is the test's."""

    def begin(program, **env):
        run.command = (sys.executable,)
        given = {name: str(value) for name, value in env.items()}
        return run.start(program, env={"PSP_KEY": A_KEY, **given})

    return begin


def ends(processes):
    """The output of all processes, sorted; all must succeed and say nothing else."""
    told = [(*it.communicate(timeout=TIMEOUT), it.returncode) for it in processes]
    assert [(err, code) for _, err, code in told] == [("", 0)] * len(told), told
    return sorted("".join(out for out, *_ in told).splitlines())


def numbered(rank, size, port, **env):
    return {"PSP_RANK": rank, "PSP_SIZE": size, "PSP_STORE": f"127.0.0.1:{port}", **env}


def test_a_scheduler_s_ranks_are_one_world(start, script):
    path, port = script(rings), free_port()
    assert ends([start(path, **numbered(rank, 3, port)) for rank in (2, 1, 0)]) == RING


def of_torchrun(rank, master, run_id="none"):
    """The variables that torchrun sets for a worker, as of version 2.13."""
    return {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "GROUP_RANK": 0,
        "ROLE_RANK": rank,
        "WORLD_SIZE": 3,
        "LOCAL_WORLD_SIZE": 3,
        "GROUP_WORLD_SIZE": 1,
        "ROLE_WORLD_SIZE": 3,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": master,
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
    }


@pytest.mark.parametrize("chosen", [False, True])
def test_the_variables_of_torchrun_while_its_agent_holds_its_port(start, script, chosen):
    path = script(rings)
    with socket.create_server(("127.0.0.1", 0)) as agent:
        master = agent.getsockname()[1]
        more = {"PSP_STORE_PORT": free_port()} if chosen else {}
        ranks = [start(path, **of_torchrun(rank, master), **more) for rank in range(3)]
        assert ends(ranks) == RING


def test_torchrun_itself(run, script):
    """PSCOMPY_TEST_TORCHRUN names a torchrun, whose Python needs cffi, pluggy and numpy."""
    torchrun = os.environ.get("PSCOMPY_TEST_TORCHRUN") or shutil.which("torchrun")
    if not torchrun:
        pytest.skip("PSCOMPY_TEST_TORCHRUN names no torchrun, nor is there one on the PATH")
    run.command = (torchrun, "--nproc-per-node=3", "--master-port", str(free_port()))
    done = run(script(rings))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == RING


def test_the_port_of_the_store_is_never_torchrun_s():
    ports = [port_beside(master) for master in range(1, 65536)]
    assert all(1024 < port < 32768 and port != master for master, port in enumerate(ports, 1))
    assert all(one != other for one, other in itertools.pairwise(ports))


def test_a_rank_with_another_key_is_refused_by_name(start, script):
    port = free_port()
    first = start(script(rings), **numbered(0, 2, port))
    other = start(script(rings), **numbered(1, 2, port, PSP_KEY=ANOTHER_KEY))
    error = other.communicate(timeout=TIMEOUT)[1]
    assert other.returncode == 1
    assert re.search(r"AuthError: .*127.0.0.1.*another key.*the same PSP_KEY", error)
    assert "give all ranks the same PSP_KEY" in first.stderr.readline()
    assert ends([start(script(rings), **numbered(1, 2, port))]) == ["1 of 2 got 0"]
    assert first.wait(TIMEOUT) == 0


@contextlib.contextmanager
def stranger_at_a_port(*answers):
    """The port of somebody who answers one caller's lines, and then leaves."""

    def answer():
        link = server.accept()[0]
        for line in answers:
            link.recv(4096)
            link.sendall(line)
        link.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def of_rank_1(port):
    return {**{k: str(v) for k, v in numbered(1, 2, port).items()}, "PSP_KEY": A_KEY}


def test_a_store_with_another_key_is_not_believed():
    """A process that listens there and says welcome to everybody."""
    answers = (pack("challenge", nonce="ab"), pack("welcome", proof="cd" * 32))
    with stranger_at_a_port(*answers) as port, pytest.raises(AuthError, match="PSP_KEY"):
        detect(of_rank_1(port))


@pytest.mark.parametrize(
    ("rank", "size", "complaint"),
    [(0, 2, "cannot listen at port"), (1, 3, "rank 1 of 3 in a job of 2 ranks")],
)
def test_a_rank_that_does_not_fit_is_refused(start, script, rank, size, complaint):
    port = free_port()
    first = start(script(rings), **numbered(0, 2, port))
    wait_for_port(port)
    other = start(script(rings), **numbered(rank, size, port))
    assert complaint in other.communicate(timeout=TIMEOUT)[1]
    first.kill()


def wait_for_port(port):
    def listens():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    expect_soon(listens, "rank 0 listening")


def test_strangers_keep_no_rank_out(start, script):
    port = free_port()
    first = start(script(rings), **numbered(0, 2, port))
    wait_for_port(port)
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    idle[0].close()
    idle[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert ends([first, start(script(rings), **numbered(1, 2, port))])[1] == "1 of 2 got 0"
    for link in idle[1:]:
        link.close()


def all_call_before_one_proves(port, size):
    config = Config({"": VARIABLES})
    key, first = find_key(config), Membership(0, size, "127.0.0.1", port, "PSP_STORE")
    own = Store(first, key.secret, PreconOptions.of(config)).start()
    others = [first._replace(rank=rank) for rank in range(1, size)]
    links = [_reach(it, 60) for it in others]
    for it, link in zip(others, links, strict=True):
        _prove(link, it, key)
    own.close()


def test_ranks_that_all_call_at_once(start, script):
    assert ends([start(script(all_call_before_one_proves, free_port(), 200))]) == []


def calls_without_descriptors(port):
    """Prints whether a store idles while it has no descriptor for a caller."""
    config = Config({"": VARIABLES})
    key, first = find_key(config), Membership(0, 2, "127.0.0.1", port, "PSP_STORE")
    own = Store(first, key.secret, PreconOptions.of(config)).start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    caller = socket.socket()
    with contextlib.ExitStack() as taken:
        with contextlib.suppress(OSError):
            while True:
                taken.enter_context(socket.socket())
        caller.connect(("127.0.0.1", port))
        idle = idles(lambda: own_use(0.3))
    other = first._replace(rank=1)
    _prove(caller, other, key)
    own.close()
    sys.stdout.write(f"{idle}\n")


def test_a_store_without_descriptors_sleeps_and_then_admits(start, script):
    assert ends([start(script(calls_without_descriptors, free_port()))]) == ["True"]


def test_a_rank_that_dies_ends_the_others_barrier(start, script):
    def meets_nobody():
        world = pscompy.World()
        sys.stdout.write("open\n")
        sys.stdout.flush()
        if world.rank:
            stay()
        try:
            world._job.bootstrap.barrier()
        except pscompy.PeerLost as error:
            sys.stdout.write(f"{error}\n")

    port = free_port()
    first, other = (start(script(meets_nobody), **numbered(rank, 2, port)) for rank in (0, 1))
    assert other.stdout.readline() == "open\n"
    other.send_signal(signal.SIGKILL)
    assert ends([first]) == ["barrier of all ranks: rank 1 has left", "open"]


def test_rank_0_that_ends_is_named_as_the_store(start, script, tmp_path):
    def opens(file):
        bootstrap = attach()
        if bootstrap.rank == 0:
            expect_soon(Path(file).exists)
            os._exit(0)
        Path(file).touch()
        try:
            pscompy.World()
        except pscompy.PeerLost as error:
            sys.stdout.write(f"{error} ({error.peer})\n")

    port = free_port()
    program = script(opens, str(tmp_path / "attached"))
    first, other = (start(program, **numbered(rank, 2, port)) for rank in (0, 1))
    assert ends([first, other]) == [f"the store of rank 0 at 127.0.0.1:{port} is gone (rank 0)"]


def test_rank_0_that_never_comes():
    with pytest.raises(Timeout, match=r"PSP_STORE_TIMEOUT=0.2 s.*refused"):
        detect({**of_rank_1(free_port()), "PSP_STORE_TIMEOUT": "0.2"})


def test_a_link_to_itself_is_none(monkeypatch):
    """A caller whose own port the kernel chooses may get that of a store that nobody serves yet."""
    port = free_port()

    def connected_to_itself(address, timeout):
        sock = socket.socket()
        sock.bind(address)
        sock.connect(address)
        return sock

    monkeypatch.setattr(socket, "create_connection", connected_to_itself)
    with pytest.raises(Timeout, match="nobody listens there"):
        _reach(Membership(1, 2, "127.0.0.1", port, "PSP_STORE"), 0.0)


def test_another_service_at_the_port_is_named():
    named = pytest.raises(ConnectError, match="PSP_STORE names another port")
    with stranger_at_a_port() as port, named:
        detect(of_rank_1(port))


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        (
            {"PSP_RANK": "1", "PSP_SIZE": "2"},
            "^PSP_RANK=1 PSP_SIZE=2: .*all three.*; PSP_STORE is not set$",
        ),
        ({"PSP_RANK": "0"}, "^PSP_RANK=0: .*; PSP_SIZE is not set; PSP_STORE is not set$"),
        ({"PSP_STORE": "a:1"}, "^PSP_STORE=a:1: .*; PSP_RANK is not set; PSP_SIZE is not set$"),
        ({"PSP_RANK": "auto", "PSP_SIZE": "2"}, "^PSP_RANK=auto PSP_SIZE=2: .*STORE is not set$"),
        ({"PSP_RANK": "2", "PSP_SIZE": "2", "PSP_STORE": "a:1"}, "below the size"),
        *(
            (
                {"PSP_RANK": "0", "PSP_SIZE": "2", "PSP_STORE": f"localhost:{port}"},
                f"PSP_STORE=localhost:{port}.*from 1 to 65535$",
            )
            for port in (0, 65536)
        ),
        ({"PSP_SIZE": "2"}, "^PSP_SIZE=2: .*all three"),
        (
            {"RANK": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
            "RANK='x'.*not numbers",
        ),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, "OMPI_COMM_WORLD_SIZE=2"),
        ({"PALS_RANKID": "0"}, "PALS_RANKID=0"),
        ({"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "2"}, "FLUX_TASK_RANK=0"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, "SLURM_PROCID=0.*4 tasks"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI_RANK=0"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "RANK=0 WORLD_SIZE=2"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(environ, complaint):
    with pytest.raises(ConfigError, match=complaint):
        detect(environ)
    if "PSP_RANK" not in environ:
        assert isinstance(detect({**environ, "PSP_SIZE": "1"}), Single)


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "64", "SLURM_PROCID": "0"},  # in a batch script
        {"SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {"PBS_NODEFILE": "/var/spool/nodes", "PBS_NP": "64", "PBS_TASKNUM": "1"},
        {"FLUX_URI": "local:///run/flux", "FLUX_JOB_SIZE": "1", "FLUX_TASK_RANK": "0"},
        {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
    ],
)
def test_a_notebook_inside_an_allocation_is_alone(environ):
    assert isinstance(detect(environ), Single)


def test_the_world_of_one_under_any_launcher(run):
    told = run("-n", 2, "-c", "import pscompy; print(pscompy.World().size)",
               env={"RANK": "0", "WORLD_SIZE": "9", "PSP_RANK": "0", "PSP_SIZE": "9",
                    "PSP_STORE": "nowhere:1"})  # fmt: skip
    assert (told.stdout, told.stderr) == ("2\n2\n", "")
    told = run("-n", 2, "--env", "PSP_SIZE=1", "-c", "import pscompy; print(pscompy.World().size)")
    assert (told.stdout, told.stderr) == ("1\n1\n", "")


def test_the_recipe_for_kubernetes(start, script):
    """The page's variables start a World, with the index that a pod has, on one host."""
    page = (Path(pscompy.get_include()) / "docs/launch.md").read_text()
    recipe = page[page.index("completionMode: Indexed") : page.index("`backoffLimit: 0` ends")]
    values = dict(re.findall(r"- name: (PSP_\w+)\n +value: \"?([^\"\n]+)", recipe))
    assert sorted(re.findall(r"- name: (PSP_\w+)", recipe)) == sorted(
        {*values, "PSP_RANK", "PSP_KEY"}
    )
    size = int(re.search(r"completions: (\d+)", recipe)[1])
    host, _, _ = values["PSP_STORE"].partition(":")
    assert host == "ring-0.ring"  # JOB-INDEX.SUBDOMAIN
    env = {**values, "PSP_STORE": f"localhost:{free_port()}"}
    told = ends([start(script(rings), PSP_RANK=rank, **env) for rank in range(size)])
    assert told == [f"{rank} of {size} got {(rank - 1) % size}" for rank in range(size)]
