"""Gateways between a module with ib alone and one with tcp alone; run inside the guest as root
(see test_guest.py).

No route leads from one network namespace to the other. The guest's kernel lets all namespaces
use its one device.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gate import STEP, Gate
from tests.gateway.namespaces import PORT, ROOT, TIMEOUT, Machine, finished
from tests.ib.devices import without_pictures

DEMO = ROOT / "examples/heat/heat.py"
SOAK = ROOT / "tests/gateway/soak.py"
SIZE, STEPS = 48, 60  # size and steps of the demo
ENDLESS = 1_000_000  # rounds
MUCH = 1_000_000  # bytes
ONLY = {1: {"PSP_SHM": 0, "PSP_TCP": 0}, 2: {"PSP_SHM": 0, "PSP_IB": 0}}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine that all tests share, because starting one in a guest takes long."""
    made = Machine(modules=2, gateways=2)
    try:
        made.open()
        for number in made.gateways:
            fabrics = f"ib@10.1.{number}.9:{PORT}", f"tcp@10.2.{number}.9:{PORT}"
            made.start_gateway(number, fabrics=fabrics)
        yield made
    finally:
        made.close()


def both(
    machine: Machine, program: Path, *options: object, **environ: object
) -> list[subprocess.Popen[str]]:
    """Start two ranks in each module."""
    ranks = machine.ranks
    return [ranks(it, 2, program, *options, **ONLY[it], **environ) for it in machine.modules]


def users(machine: Machine, number: int) -> list[dict[str, Any]]:
    """The gateway's status of each process that uses it."""
    peers: Any = machine.status(number, module=2)["peers"]
    return [peer for peer in peers if peer["node"]]


def over_ib(machine: Machine, number: int) -> int:
    """Bytes between a gateway and its present users in the module that has ib."""
    found = (it for it in users(machine, number) if it["module"] == 1)
    return sum(it["in_bytes"] + it["out_bytes"] for it in found)


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(STEP)


def test_the_demo(machine: Machine, tmp_path: Path) -> None:
    options = "--size", SIZE, "--steps", STEPS, "--out", tmp_path
    path = f"{without_pictures(tmp_path)}:{ROOT}"
    first, second = both(machine, DEMO, *options, PYTHONPATH=path)
    out, _ = finished(first)
    finished(second)
    assert "matches the serial result" in out
    passed = 0
    for number in machine.gateways:
        counters: Any = machine.status(number, module=2)["counters"]
        passed += counters["bytes"]
    assert passed > STEPS * 2 * SIZE * 8  # the halo between ranks 1 and 2


def test_a_gateway_is_killed_and_then_the_other(machine: Machine, tmp_path: Path) -> None:
    with closing(Gate(machine, tmp_path / "gate")) as gate:
        processes = both(machine, SOAK, ENDLESS, ENDLESS, gate.path)
        gate.let_through(4)
    machine.kill_gateway(1)
    before = over_ib(machine, 2)
    until(lambda: over_ib(machine, 2) > before + MUCH, "the other one is used")
    assert [process.poll() for process in processes] == [None, None]
    machine.kill_gateway(2)
    for process in processes:
        _, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 1
        # "leads to it" of a connection that breaks, "is there" of an attempt to connect again
        assert "no gateway leads to it" in err or "no gateway is there" in err, err
