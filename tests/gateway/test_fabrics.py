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


def exchanges_beside_rails():
    with pscompy.World() as world:
        others = [rank for rank in range(world.size) if rank != world.rank]
        data = bytes([world.rank]) * 3_000_000
        requests = [world.isend(data, dest=other) for other in others]
        for other in others:
            assert world.recv(source=other) == bytes([other]) * len(data)
        for request in requests:
            request.wait()
        world.barrier()
        lanes = {other: len(world[other].explain().as_dict()["rails"]) for other in others}
        print(world.rank, [world[other].transport for other in others], list(lanes.values()))


def test_rails_of_both_transports_beside_a_gateway(machine, script):
    """Ranks of one module have two rails; to the other module they have the gateway."""
    fabric = f"portals+tcp@10.1.1.9:{PORT},RAILS=portals+tcp,PORTALS_INTERFACE=10.1.1.9"
    machine.start_gateway(1, fabrics=(fabric, FABRICS[1]))
    second = machine.ranks(2, 1, script(exchanges_beside_rails))
    rails = {"PSP_SHM": 0, "PSP_RAILS": "portals+tcp", "PSP_TCP": 1}
    first = machine.ranks(1, 2, script(exchanges_beside_rails), **(PORTALS | rails))
    assert sorted(finished(first)[0].splitlines()) == [
        f"{rank} ['portals', 'gateway'] [2, 1]" for rank in (0, 1)
    ]
    assert finished(second)[0] == "2 ['gateway', 'gateway'] [1, 1]\n"
