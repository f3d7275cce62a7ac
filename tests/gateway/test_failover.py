"""Gateways are killed and restarted while messages are in flight."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from namespaces import TIMEOUT, finished

import pscompy

KILLED = Path(__file__).with_name("killed.py")
PEERS = int(os.environ.get("PSCOMPY_TEST_PEER_KILLS", "6"))
SOON = 45  # seconds; an idle machine needs 2 or 3, the defect that this bound detects took minutes
SOAK = Path(__file__).with_name("soak.py")
KILLS = int(os.environ.get("PSCOMPY_TEST_GATEWAY_KILLS", "2"))
EVERY = 12  # rounds between two kills


def loses_its_peer():
    with pscompy.World() as world:
        other = 1 - world.rank
        if world.rank == 0:
            world.send(b"hello", dest=other)
            world.recv(source=other)
            os.write(1, b"connected\n")  # rank 1 has received before it has answered
        else:
            world.send(world.recv(source=other), dest=other)
        begun = time.monotonic()
        try:
            world.recv(source=other)
        except pscompy.PeerLost as error:
            print(f"after {time.monotonic() - begun:.1f} s: {error}", file=sys.stderr, flush=True)
            os._exit(7)


@pytest.mark.parametrize("machine", [(2, 2)], indirect=True)
def test_killed_gateways_cost_no_message(machine, gate):
    """Gateways are killed in turn while messages pass; the next one when all ranks know the
    previous one again."""
    for number in machine.gateways:
        machine.start_gateway(number)
    rounds = EVERY * (KILLS + 1)
    second = machine.ranks(2, 2, SOAK, rounds, EVERY, gate.path)
    first = machine.ranks(1, 2, SOAK, rounds, EVERY, gate.path)
    gate.let_through(4)
    for kill in range(KILLS):
        assert first.stdout.readline(), first.stderr.read()
        number = 1 + kill % 2
        machine.kill_gateway(number)
        machine.start_gateway(number)
        gate.let_through(4)
    finished(first)
    finished(second)


@pytest.mark.parametrize("machine", [(2, 2)], indirect=True)
def test_with_no_gateway_left_the_peer_is_lost(machine, script):
    for number in machine.gateways:
        machine.start_gateway(number)
    second = machine.ranks(2, 1, script(loses_its_peer))
    first = machine.ranks(1, 1, script(loses_its_peer))
    assert first.stdout.readline() == "connected\n", first.stderr.read()
    for number in machine.gateways:
        machine.kill_gateway(number)
    for module, process in ((1, first), (2, second)):
        _, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 7
        assert "no gateway leads to it" in err
        for number in machine.gateways:
            assert f"10.{module}.{number}.9:4470" in err


@pytest.mark.parametrize("machine", [(2, 1), (2, 2)], indirect=True)
def test_a_peer_killed_before_or_while_it_connects_is_lost(machine):
    """Peers are killed at random moments, from before the survivor connects to after the first
    message."""
    for number in machine.gateways:
        machine.start_gateway(number)
    there = [f"PSP_GW_SERVER={machine.servers(2)}", "PSP_MSA_MODULE_ID=2"]
    command = ["env", *there, "ip", "netns", "exec", machine.module(2)]
    out, err = finished(machine.python(1, KILLED, PEERS, os.getpid(), *command))
    lines = [json.loads(line) for line in out.splitlines()]
    print(histogram([line["seconds"] for line in lines]))
    assert len(lines) == PEERS
    for line in lines:
        assert line["told"].startswith(("PeerLost", "ConnectError")), line
        assert line["seconds"] < SOON, line
    assert "Traceback" not in err


def histogram(seconds):
    """A histogram of the times until notification, in steps of half a second."""
    steps = [int(each * 2) for each in seconds]
    counts = {step: steps.count(step) for step in range(max(steps) + 1)}
    return "\n".join(f"{step / 2:4.1f} s and up: {'#' * n} {n}" for step, n in counts.items())
