"""Gateways in the background, stopped while messages pass, and what they tell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from namespaces import PORT, TIMEOUT, finished

SOAK = Path(__file__).with_name("soak.py")


def command(machine, *words):
    """`pscompy gateway` where gateway 1 is."""
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
        asking = machine.python(1, "-m", "gateway", "status", f"10.1.1.9:{PORT}")
        told = finished(asking)[0].splitlines()
        assert told[0].startswith("gateway ")
        assert any("packets" in line for line in told)
    finally:
        finished(command(machine, "stop", "--pid-file", pid))
    assert not pid.exists()
    again = command(machine, "stop", "--pid-file", pid)
    assert "no process is running" in again.communicate(timeout=TIMEOUT)[1]


@pytest.mark.parametrize("machine", [(2, 2)], indirect=True)
def test_stopped_while_messages_pass(machine):
    for number in machine.gateways:
        machine.start_gateway(number)
    second = machine.ranks(2, 2, SOAK, 20, 10)
    first = machine.ranks(1, 2, SOAK, 20, 10)
    assert first.stdout.readline(), first.stderr.read()
    stopped = machine.running.pop(1)
    stopped.terminate()
    finished(first)
    finished(second)
    assert stopped.wait(TIMEOUT) == 0


def test_a_picture(machine, tmp_path):
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install 'pscompy[plot]'")
    machine.start_gateway(1)
    work = machine.ranks(2, 2, SOAK, 30, 1)
    other = machine.ranks(1, 2, SOAK, 30, 1)
    assert other.stdout.readline(), other.stderr.read()
    out = tmp_path / "map.png"
    finished(machine.python(1, "-m", "gateway", "map", f"10.1.1.9:{PORT}", "--out", out))
    assert out.read_bytes().startswith(b"\x89PNG")
    finished(other)
    finished(work)
