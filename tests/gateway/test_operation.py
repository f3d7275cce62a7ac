"""Gateways run in the background, are stopped while messages pass, and report their status."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gate as the_gate
import pytest
from namespaces import PORT, TIMEOUT, finished
from pscompy_gateway.cli import command as command_line
from pscompy_gateway.cli import report, topology_plot
from pscompy_gateway.cli.command import main
from pscompy_gateway.transport.config import VARIABLES

import pscompy
from tests.names import A_KEY

SOAK = Path(__file__).with_name("soak.py")


def command(machine, *words):
    """Run `pscompy gateway` in the namespace of gateway 1."""
    return machine.start(machine.gateway(1), sys.executable, "-m", "pscompy", "gateway", *words)


def fabrics(machine):
    return [f"tcp@10.{module}.1.9:{PORT}" for module in machine.modules]


def test_started_and_stopped(machine, tmp_path):
    pid, log = tmp_path / "pid", tmp_path / "log"
    start = ("start", "--pid-file", pid, "--log", log, *fabrics(machine))
    assert "serves" in finished(command(machine, *start))[0]
    try:
        second = command(machine, *start)
        assert "is running" in second.communicate(timeout=TIMEOUT)[1]
        assert second.returncode == 1
        work = machine.ranks(2, 2, SOAK, 5, 5)
        finished(machine.ranks(1, 2, SOAK, 5, 5))
        finished(work)
        asking = machine.python(1, "-m", "pscompy_gateway", "status", f"10.1.1.9:{PORT}")
        told = finished(asking)[0].splitlines()
        assert told[0].startswith("gateway ")
        assert any("packets" in line for line in told)
    finally:
        finished(command(machine, "stop", "--pid-file", pid))
    assert not pid.exists()
    again = command(machine, "stop", "--pid-file", pid)
    assert "no process is running" in again.communicate(timeout=TIMEOUT)[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("0", "holds no process id"), ("-1", "holds no process id"), ("it", "is no gateway")],
)
def test_another_process_is_not_stopped(text, reason, tmp_path, capsys):
    pid = tmp_path / "pid"
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        pid.write_text(str(other.pid) if text == "it" else text)
        assert main(["stop", "--pid-file", str(pid)]) == 1
        assert reason in capsys.readouterr().err
    assert other.returncode == 0


@pytest.fixture
def started(monkeypatch):
    """The processes that this process starts; those that are left are killed after the test."""
    processes, popen = [], subprocess.Popen

    def start(*args, **options):
        processes.append(popen(*args, **options))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    yield processes
    for process in processes:
        process.kill()
        with process:  # closes its pipes
            pass


def test_no_gateway_is_left_without_a_pid_file(started, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PSP_KEY", A_KEY)
    pid = tmp_path / "nowhere" / "pid"
    assert main(["start", "--pid-file", str(pid), "tcp@127.0.0.1:0"]) == 1
    assert f"{pid} cannot be written: No such file" in capsys.readouterr().err
    assert [it.returncode is not None for it in started] == [True]
    pid = tmp_path / "pid"
    pid.write_text(str(os.getpid()))  # the pid of a process that is no gateway
    assert main(["start", "--pid-file", str(pid), "tcp@127.0.0.1:0"]) == 0
    assert main(["stop", "--pid-file", str(pid)]) == 0
    assert not pid.exists()


@pytest.mark.parametrize("answers", [False, True])
def test_a_process_that_is_no_gateway(answers, capsys, monkeypatch):
    """The process says nothing, or answers with the question."""
    monkeypatch.setenv("PSP_KEY", A_KEY)
    monkeypatch.setattr(command_line, "ANSWER_SECONDS", TIMEOUT if answers else 0.1)
    with pscompy.Session() as session:
        listening = session.listen("127.0.0.1")

        def echo():
            connection = listening.accept(TIMEOUT)
            connection.send(connection.recv(timeout=TIMEOUT), timeout=TIMEOUT)

        with ThreadPoolExecutor() as pool:
            done = pool.submit(echo) if answers else None
            assert main(["status", listening.address]) == 1
            assert done is None or done.result(TIMEOUT) is None
    assert "does not answer as a gateway does" in capsys.readouterr().err


@pytest.mark.parametrize("machine", [(2, 2)], indirect=True)
def test_stopped_while_messages_pass(machine, gate):
    for number in machine.gateways:
        machine.start_gateway(number)
    second = machine.ranks(2, 2, SOAK, 20, 20, gate.path)
    first = machine.ranks(1, 2, SOAK, 20, 20, gate.path)
    gate.let_through(4)
    assert first.stdout.readline(), first.stderr.read()
    stopped = machine.running.pop(1)
    stopped.terminate()
    finished(first)
    finished(second)
    assert stopped.wait(TIMEOUT) == 0


def talks():
    with pscompy.World() as world:
        far = [rank for rank in range(world.size) if world.modules[rank] != world.module]
        sends = [world.isend(bytes(5000), dest=rank) for rank in far]
        for rank in far:
            world.recv(source=rank)
        pscompy.wait_all(sends)
        os.write(1, b"talked\n")
        the_gate.wait(world, sys.argv[1])


def test_a_picture(machine, script, gate, tmp_path):
    """The table and the map show which ranks exchange messages while they are connected."""
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install 'pscompy[plot]'")
    machine.start_gateway(1)
    jobs = [machine.ranks(module, 2, script(talks), gate.path) for module in machine.modules]
    for job in jobs:
        for _ in range(2):
            assert job.stdout.readline() == "talked\n", job.stderr.read()
    told = machine.status(1)
    modules = {it["node"]: it["module"] for it in told["members"]}
    assert sorted(modules.values()) == [1, 1, 2, 2]
    assert {(it["from_node"], it["to_node"]) for it in told["streams"]} == {
        (one, two) for one in modules for two in modules if modules[one] != modules[two]
    }
    assert all(it["bytes"] >= 5000 for it in told["streams"])
    assert topology_plot.totals([told, told]) == {k: 2 * n for k, n in report.pairs(told).items()}
    ranks = {it["node"]: it["rank"] for it in told["peers"]}
    assert sorted((modules[node], ranks[node]) for node in modules) == [
        *((1, 0), (1, 1), (2, 2), (2, 3)),
    ]
    lines = [line.split() for line in report.table(told)]
    for node, module in modules.items():
        assert [str(module), str(ranks[node]), f"{node:x}"] in [line[:3] for line in lines]
    pairs = {tuple(line[:4]) for line in lines if line[0] == "rank"}
    across = {(one, two) for one in "01" for two in "23"}
    assert pairs == {
        ("rank", a, "rank", b) for one, two in across for a, b in [(one, two), (two, one)]
    }
    drawn = {}
    for kind in ("png", "svg"):
        out = tmp_path / f"map.{kind}"
        asking = machine.python(1, "-m", "pscompy_gateway", "map", f"10.1.1.9:{PORT}", "--out", out)
        finished(asking)
        drawn[kind] = out.read_bytes()
    assert drawn["png"].startswith(b"\x89PNG")
    assert all(b"<!-- rank %d -->" % rank in drawn["svg"] for rank in range(4))
    assert re.findall(rb"<!-- rank \d - rank \d, ", drawn["svg"])
    gate.let_through(4)
    for job in jobs:
        finished(job)


def answers():
    with pscompy.Session() as session, session.listen() as listening:
        os.write(1, f"{listening.address}\n".encode())
        connection = listening.accept()
        connection.send(connection.recv())
        assert connection.recv() == b"end"


def asks(address):
    with pscompy.Session() as session:
        connection = session.connect(address)
        connection.send(b"question")
        connection.recv()
        os.write(1, b"answered\n")
        os.read(0, 1)
        connection.send(b"end")


def test_processes_without_ranks(machine, script):
    """Sessions outside of a World go by the numbers of their nodes."""
    machine.start_gateway(1)
    answering = machine.python(1, script(answers))
    address = answering.stdout.readline().strip()
    asking = machine.python(2, script(asks, address), stdin=subprocess.PIPE)
    assert asking.stdout.readline() == "answered\n", asking.stderr.read()
    told = machine.status(1)
    lines = [line.split() for line in report.table(told)]
    assert [it["rank"] for it in told["peers"]] == [None, None]
    for it in told["peers"]:
        assert [str(it["module"]), "-", f"{it['node']:x}"] in [line[:3] for line in lines]
    ends = {f"{it['module']}:{it['node']:x}" for it in told["peers"]}
    assert sum(set(line[:2]) == ends for line in lines) == 2
    asking.communicate("\n", timeout=TIMEOUT)
    finished(answering)


def test_a_rank_of_two_worlds():
    """Processes with one rank, of several Worlds or several endpoints, stay apart."""
    ranks = {(2 << 48) + 1: 0, (3 << 48) + 1: 0, (4 << 48) + 1: 1, (5 << 48) + 1: None}
    told = {"peers": [{"node": node, "rank": rank} for node, rank in ranks.items()]}
    names = report.rank_names([told, told])
    assert list(names.values()) == ["rank 0 (0002)", "rank 0 (0003)", "rank 1"]


def streams():
    with pscompy.World() as world:
        buffers = [bytearray(4 << 20) for _ in range(32)]
        start = world.irecv if world.rank else world.isend
        pscompy.wait_all([start(it, 1 - world.rank) for it in buffers])


def test_an_acknowledgement_answers_many_packets(machine, script):
    """A long stream costs a gateway little more than its own packets."""
    program = script(streams)
    machine.start_gateway(1)
    second = machine.ranks(2, 1, program)
    finished(machine.ranks(1, 1, program))
    finished(second)
    counters = machine.status(1)["counters"]
    assert counters["bytes"] > 32 * (4 << 20)
    assert counters["packets"] < 1.5 * counters["bytes"] / (60 << 10)


@pytest.mark.parametrize("mss", [1428, 1448, 8928, 8948])
def test_a_fragment_fills_one_segment(mss):
    """A fragment with its headers fits into one segment, for packets of 1500 and 9000 bytes. The
    stack makes segments of whole packets; a byte more would cost another segment."""
    (mtu,) = (it for it in VARIABLES if it.name == "MTU")
    headers = 28 + 56  # of tcp with an eager message, gw_head_t
    segment = 65535 // mss * mss
    assert segment - 5120 < mtu.parser(mtu.default) + headers <= segment
