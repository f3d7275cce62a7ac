"""Modules with different fabrics: Portals 4 in one, tcp in the other."""

from __future__ import annotations

import os
import sys

import pytest
from namespaces import PORT, ROOT, TIMEOUT, finished
from pscompy_gateway.daemon.daemon import Fabric

import pscompy

FABRICS = (f"portals@10.1.1.9:{PORT},PORTALS_INTERFACE=10.1.1.9", f"tcp@10.2.1.9:{PORT}")
PORTALS = {"PSP_PORTALS": 1, "PSP_PORTALS_INTERFACE": "10.1.1.1", "PSP_TCP": 0}


def exchanges():
    with pscompy.World() as world:
        other = 1 - world.rank
        for size in (8, 4000, 300_000):
            data = bytes([size % 251]) * size
            request = world.isend(data, dest=other)
            assert world.recv(source=other) == data
            request.wait()
        os.write(1, world[other].transport.encode() + b"\n")
        try:
            world.recv(source=other)
        except pscompy.PeerLost as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(7)


def test_the_demo_over_portals_and_tcp(machine, tmp_path):
    machine.start_gateway(1, fabrics=FABRICS)
    demo = ROOT / "examples/heat/heat.py"
    options = ("--size", 64, "--steps", 100, "--out", tmp_path)
    second = machine.ranks(2, 2, demo, *options)
    out, _ = finished(machine.ranks(1, 2, demo, *options, **PORTALS))
    finished(second)
    assert "matches the serial result" in out
    told = machine.status(1, module=2)
    assert [it["transports"] for it in told["fabrics"]] == [["portals"], ["tcp"]]
    assert told["counters"]["bytes"] > 100 * 2 * 64 * 8  # the halo between ranks 1 and 2


def test_the_gateway_is_the_only_way(machine, script):
    """The gateway counts all bytes of the two processes, and they lose each other when it is
    killed."""
    machine.start_gateway(1, fabrics=FABRICS)
    second = machine.ranks(2, 1, script(exchanges))
    first = machine.ranks(1, 1, script(exchanges), **PORTALS)
    for process in (first, second):
        assert process.stdout.readline() == "gateway\n", process.stderr.read()
    told = machine.status(1, module=2)
    carried = {it["fabric"]: it["in_bytes"] for it in told["peers"] if it["node"]}
    assert min(carried[0], carried[1]) >= 300_000  # at least this many bytes each way
    machine.kill_gateway(1)
    for process in (first, second):
        _, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 7
        assert "no gateway leads to it" in err


@pytest.mark.parametrize("text", ["tcp@10.1.1.9:4470,what", "10.1.1.9", "tcp@:1", "@h", "tcp@h:x"])
def test_a_fabric_that_cannot_be_understood(text):
    with pytest.raises(ValueError, match="is no fabric"):
        Fabric.parse(text)


@pytest.mark.parametrize("text", ["tcp@10.1.1.9:4470", "ib+tcp@h:1,IB_HCA=a,NETWORK=b=c"])
def test_a_fabric_is_what_its_text_says(text):
    assert str(Fabric.parse(text)) == text
