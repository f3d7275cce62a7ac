"""Programs run unchanged in two modules that have no route to each other."""

from __future__ import annotations

import json
import os
import re
import select
import sys

import pytest
from namespaces import ROOT, TIMEOUT, finished

import pscompy
from pscompy.world.bootstrap.join import Join
from tests.names import ANOTHER_KEY

SYNCHRONOUS = (0, 8, 1_000_000)  # lengths of messages


def sends_to_all():
    with pscompy.World() as world:
        for other in range(world.size):
            if other != world.rank:
                world.isend(b"from %d" % world.rank, dest=other)
        got = sorted(bytes(world.recv()) for _ in range(world.size - 1))
        told = {
            "rank": world.rank,
            "got": [data.decode() for data in got],
            "transports": [world[other].transport for other in range(world.size)],
            "explained": str(world[(world.rank + 2) % world.size].explain()),
        }
        os.write(1, (json.dumps(told) + "\n").encode())


def test_the_demo_on_two_modules(machine, tmp_path):
    machine.start_gateway(1)
    demo = ROOT / "examples/heat/heat.py"
    options = ("--size", 64, "--steps", 200, "--out", tmp_path)
    second = machine.ranks(2, 2, demo, *options)
    out, _ = finished(machine.ranks(1, 2, demo, *options))
    finished(second)
    assert "matches the serial result" in out
    status = machine.status(1)
    assert status["counters"]["bytes"] > 200 * 2 * 64 * 8  # the halo between ranks 1 and 2


def test_ranks_of_two_modules_use_the_gateway(machine, script):
    machine.start_gateway(1)
    second = machine.ranks(2, 2, script(sends_to_all))
    out = finished(machine.ranks(1, 2, script(sends_to_all)))[0] + finished(second)[0]
    told = sorted((json.loads(line) for line in out.splitlines()), key=lambda one: one["rank"])
    assert [one["rank"] for one in told] == [0, 1, 2, 3]
    for one in told:
        near = {0, 1} if one["rank"] < 2 else {2, 3}
        others = [rank for rank in range(4) if rank != one["rank"]]
        assert one["got"] == [f"from {rank}" for rank in others]
        for rank in others:
            assert one["transports"][rank] == ("shm" if rank in near else "gateway")
        assert "gateway: chosen" in one["explained"]


def sends_synchronously():
    """A message of rank 1 arrives after anything that it had sent because of the message before."""
    with pscompy.World() as world:
        if world.rank == 1:
            for nbytes in SYNCHRONOUS:
                world.send(world.recv(source=0, tag=2), dest=0, tag=2)
                world.recv(source=0, tag=3)
                assert len(world.recv(source=0, tag=1)) == nbytes
            return
        for nbytes in SYNCHRONOUS:
            request = world.issend(bytes(nbytes), dest=1, tag=1)
            world.isend(b"", dest=1, tag=2)
            world.recv(source=1, tag=2)
            print(request.test())
            world.isend(b"", dest=1, tag=3)
            request.wait()


def test_synchronous_sends(machine, script):
    machine.start_gateway(1)
    second = machine.ranks(2, 1, script(sends_synchronously))
    assert finished(machine.ranks(1, 1, script(sends_synchronously)))[0] == 3 * "False\n"
    finished(second)


def forks():
    with pscompy.World() as world:
        other = 1 - world.rank
        world.send(b"before", dest=other)
        assert world.recv(source=other) == b"before"
        if (child := os.fork()) == 0:
            try:
                world.send(b"from the child", dest=other)
            except pscompy.Closed:
                sys.exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        world.send(b"after", dest=other)
        assert world.recv(source=other) == b"after"
        print(world[other].transport)


def test_a_forked_child_leaves_the_gateway_alone(machine, script):
    machine.start_gateway(1)
    second = machine.ranks(2, 1, script(forks))
    assert finished(machine.ranks(1, 1, script(forks)))[0] == "gateway\n"
    assert finished(second)[0] == "gateway\n"


def test_no_gateway_is_named_in_time(machine, script):
    process = machine.ranks(1, 1, script(sends_to_all), PSP_JOIN_TIMEOUT=1)
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode != 0
    assert "no gateway is there" in err
    assert "10.1.1.9:4470" in err


def test_a_module_that_does_not_come(machine, script):
    """The limit of one second may end before the ranks reach the gateway, so only the kind of
    their error is checked; another test checks the message about a missing gateway."""
    machine.start_gateway(1)
    process = machine.ranks(1, 2, script(sends_to_all), PSP_JOIN_TIMEOUT=1)
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode != 0
    assert "Timeout" in err
    asking = machine.python(1, script(asks_for_a_meeting, "number 1 joined"), PSP_JOIN="test:2")
    assert "test: of 2 modules only those with the number 1 joined" in finished(asking)[0]


def asks_for_a_meeting(until):
    meeting = Join.wanted(None).meeting()
    reason = ""
    while until not in reason:
        try:
            meeting.exchange(0, "[]", 0.1)
        except pscompy.Timeout as error:
            reason = str(error)
    print(reason)
    meeting.close()


def expects_another_key():
    try:
        pscompy.World()
    except pscompy.AuthError as error:
        os.write(1, f"{error}\n".encode())


def test_a_module_with_another_key(machine, script):
    """Both sides say so, and name the remedy: the ranks raise it, the gateway logs it."""
    gateway = machine.start_gateway(1, PSP_DEBUG="")
    both = machine.ranks(1, 2, script(expects_another_key), PSP_KEY=ANOTHER_KEY)
    lines = finished(both)[0].splitlines()
    assert len(lines) == 2
    assert all("the peer holds another key" in line for line in lines)
    assert machine.status(1)["members"] == []
    machine.kill_gateway(1)
    refused = r"warning: 10\.1\.[\d.:]+: AuthError: the peer holds another key.*the same PSP_KEY"
    assert re.search(refused, gateway.stderr.read())


def test_modules_have_the_key_of_their_user(machine, script, tmp_path):
    """As on the page: no key is set, and all processes find the user's key file."""
    env = {"PSP_KEY": "", "XDG_CONFIG_HOME": tmp_path}
    machine.start_gateway(1, **env)
    second = machine.ranks(2, 1, script(sends_to_all), **env)
    first = machine.ranks(1, 1, script(sends_to_all), **env)
    told = [json.loads(finished(job)[0]) for job in (first, second)]
    assert [it["got"] for it in told] == [["from 1"], ["from 0"]]


def test_a_second_module_of_the_same_number(machine, script):
    """One of the two modules is refused; the other waits for a module that never joins."""
    machine.start_gateway(1)
    both = [machine.ranks(1, 1, script(sends_to_all), PSP_JOIN_TIMEOUT=600) for _ in range(2)]
    ends = [os.pidfd_open(it.pid) for it in both]
    ended, _, _ = select.select(ends, [], [], TIMEOUT)
    for end in ends:
        os.close(end)
    assert len(ended) == 1
    (refused,) = (it for it in both if it.poll() is not None)
    assert refused.returncode != 0
    assert "there is a module 1 already" in refused.communicate(timeout=TIMEOUT)[1]


@pytest.mark.parametrize("join", ["test", "test:", ":2", "test:none", "test:0"])
def test_a_join_that_cannot_be_understood(join):
    with pytest.raises(pscompy.ConfigError, match="PSP_JOIN"):
        Join.wanted({"JOIN": join})
