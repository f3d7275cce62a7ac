"""A hostile or broken process cannot harm a gateway or the processes that use it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from namespaces import PORT, TIMEOUT, finished
from pscompy_gateway.trunk import Trunk, session

import pscompy
from pscompy.control.lane import Lane
from tests.waiting import expect_soon


def exchanges():
    with pscompy.World() as world:
        other = (world.rank + world.size // 2) % world.size
        for number in range(100):
            request = world.isend(number.to_bytes(2, "little") * 20_000, dest=other)
            assert world.recv(source=other) == number.to_bytes(2, "little") * 20_000
            request.wait()
        os.write(1, b"done\n")


def stops_a_receiver():
    with pscompy.World() as world:
        if world.rank == 0:
            world.send(b"hello", dest=2)
            sends = [world.isend(bytes([n]) * 100_000, dest=2) for n in range(200)]
            for _ in range(100):
                world.send(bytes(50_000), dest=3)
            pscompy.wait_all(sends)
        elif world.rank == 2:
            world.recv(source=0)
            os.write(1, b"%d\n" % os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)
            for n in range(200):
                assert world.recv(source=0) == bytes([n]) * 100_000
        else:
            other = 4 - world.rank
            for _ in range(300):
                request = world.isend(bytes(50_000), dest=other)
                world.recv(source=other)
                request.wait()
            if world.rank == 3:
                for _ in range(100):
                    world.recv(source=0)
            os.write(1, b"went on\n")


def sends_garbage():
    for where in sys.argv[1:]:
        host, _, port = where.rpartition(":")
        for size in (1, 40, 4000, 100_000):
            with socket.create_connection((host.strip("[]"), int(port)), timeout=60) as sock:
                with contextlib.suppress(OSError):
                    sock.sendall(os.urandom(size))


MALFORMED = (
    b"no json",
    b"[]",
    b"{}",
    b'{"kind": 5}',
    b'{"kind": "nothing"}',
    b'{"kind": "tunnel"}',
    b'{"kind": "hello", "node": "x", "module": 1}',
    b'{"kind": "hello", "node": -1, "module": 1}',
    b'{"kind": "modules", "modules": 1}',
    b'{"kind": "join", "name": "x"}',
    b"[" * 5000,
    b"[" * 60_000,
    b'{"kind": "hello", "node": 1, "module": 1, "names": ' + b"[" * 300 + b"]" * 300 + b"}",
    b'{"kind": "hello", "node": Infinity, "module": 1}',
    b'{"kind": "hello", "node": 5, "module": 99999}',
    b'{"kind": "hello", "node": 5, "module": 1, "rank": -1}',
    b'{"kind": "hello", "node": 5, "module": 1, "rank": 2147483648}',
    b'{"kind": "hello", "node": 5, "module": 1, "rank": "no number"}',
    b'{"kind": "hello", "node": 5, "module": 1, "rank": [3]}',
)
# Frames that a process, here node 77, may not send.
FORBIDDEN = (
    b'{"kind": "gone", "about": 12345}',
    b'{"kind": "leaving"}',
    b'{"kind": "modules", "modules": {"1": 0}}',
    b'{"kind": "found", "node": 12345}',
    b'{"kind": "hello", "node": 78, "module": 1}',
    b'{"kind": "tunnel", "module": 1, "node": 1, "from_node": 12345, "from_module": 1}',
    b'{"kind": "find", "module": 1, "node": 1, "from_node": 77, "from_module": 2}',
)


async def open_trunk(here, address):
    connection = here.connect(address)
    await connection.iopen()
    return Trunk(connection)


async def ends(victim, frame):
    """The gateway closes the trunk on which this frame arrives."""
    victim.connection.isend(frame)
    try:
        while True:
            await victim.receive()
    except pscompy.PscomError:
        print("ended")


async def send_nonsense(address):
    with session({"PSP_RENDEZVOUS": "inf"}) as here:
        for frame in MALFORMED:
            await ends(await open_trunk(here, address), frame)
        for frame in FORBIDDEN:
            known = await open_trunk(here, address)
            known.send({"kind": "hello", "node": 77, "module": 1})
            await ends(known, frame)
        asking = await open_trunk(here, address)
        asking.send({"kind": "hello", "node": 12345, "module": 1})
        data = here.connect((await asking.receive())["data"])
        await data.iopen()
        for size in (0, 1, 55, 56, 57, 200):
            for _ in range(50):
                data.am_send(0x67617465, os.urandom(size), os.urandom(100))
        data.am_send(77, b"x", b"nobody has this handler")
        asking.send({"kind": "status"})
        print((await asking.receive())["kind"])


def sends_nonsense(address):
    asyncio.run(send_nonsense(address))


def exchange(machine, script):
    """Two processes, one in each module, exchange messages through the gateway."""
    second = machine.ranks(2, 1, script(exchanges))
    assert finished(machine.ranks(1, 1, script(exchanges)))[0] == "done\n"
    finished(second)


def listening(machine):
    """Every address at which the gateway listens, as seen from module 1."""
    command = ["ip", "netns", "exec", machine.gateway(1), "ss", "-ltnH"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ports = {line.split()[3].rpartition(":")[2] for line in lines}
    return [f"10.1.1.9:{port}" for port in ports]


def test_garbage_on_every_port(machine, script):
    gateway = machine.start_gateway(1)
    ports = listening(machine)
    assert f"10.1.1.9:{PORT}" in ports
    reachable = [where for where in ports if connects(machine, where)]
    assert len(reachable) >= 3  # the trunks', the data's, and the fabric's own ports
    finished(machine.python(1, script(sends_garbage), *reachable))
    exchange(machine, script)
    assert gateway.poll() is None


def connects(machine, where):
    host, _, port = where.rpartition(":")
    program = f"import socket; socket.create_connection(({host!r}, {port}), timeout=60)"
    process = machine.python(1, "-c", program)
    process.communicate(timeout=TIMEOUT)
    return process.returncode == 0


def test_nonsense_of_somebody_who_has_the_key(machine, script):
    """Each malformed frame is logged once, in one line, and ends only the trunk that it arrived
    on."""
    gateway = machine.start_gateway(1, PSP_DEBUG=2)
    program = script(sends_nonsense, f"10.1.1.9:{PORT}")
    asking = machine.python(1, program, PSP_GW_SERVER="")
    *ended, last = finished(asking)[0].splitlines()
    assert (set(ended), last) == ({"ended"}, "status")
    exchange(machine, script)
    gateway.terminate()
    _, err = gateway.communicate(timeout=TIMEOUT)
    assert gateway.returncode == 0
    assert "Traceback" not in err
    assert sum("sent" in line for line in err.splitlines()) == len(ended), err


WRONG_TOKEN = r"gateway: .*the (?:connector|acceptor) does not hold the lane's token"


def echoes():
    with pscompy.Session() as session, session.listen() as listening:
        os.write(1, f"{listening.address}\n".encode())
        connection = listening.accept()
        for _ in range(2):
            connection.send(connection.recv())
        try:
            listening.accept(timeout=0)
        except pscompy.Timeout:
            os.write(1, b"nobody else\n")


def talks(address, sign):
    with pscompy.Session() as session:
        connection = session.connect(address)
        for number in range(2):
            connection.send(b"%d" % number)
            assert connection.recv() == b"%d" % number
            os.write(1, b"echoed\n")
            expect_soon(Path(sign).exists)


def forges(address):
    """Connect as a process that has the key, but not the token of the gateway's lane."""
    connect = Lane.connect

    def connect_forged(lane, role, token, *where):
        connect(lane, role, bytes(32) if lane.option.name == "gateway" else token, *where)

    Lane.connect = connect_forged
    with pscompy.Session() as session:
        try:
            session.connect(address).open()
        except pscompy.ConnectError as error:
            print(error)


def test_a_forged_token_is_refused(machine, script, tmp_path):
    """A stranger fails to connect through the gateway; the peer that it tries logs that, accepts
    nobody, and goes on with its other peer."""
    gateway = machine.start_gateway(1)
    listening = machine.python(1, script(echoes), PSP_DEBUG=2)
    address = listening.stdout.readline().strip()
    good = machine.python(2, script(talks, address, str(tmp_path / "sign")))
    assert good.stdout.readline() == "echoed\n"
    refused, _ = finished(machine.python(2, script(forges, address)))
    assert re.search(WRONG_TOKEN, refused)
    (tmp_path / "sign").touch()
    assert finished(good)[0] == "echoed\n"
    out, err = finished(listening)
    assert out == "nobody else\n"
    assert len(re.findall(WRONG_TOKEN, err)) == 1
    assert gateway.poll() is None


@pytest.mark.parametrize("share", ["1M", "32M"])
def test_a_receiver_that_stops(machine, script, share):
    """A gateway holds for a stopped receiver at most its granted bytes or its share; other
    streams continue, and nothing is lost."""
    machine.start_gateway(1, f"--share={share}", f"--memory={share}")
    program = script(stops_a_receiver)
    second = machine.ranks(2, 2, program, PSP_GW_TOKENS=32)
    first = machine.ranks(1, 2, program, PSP_GW_TOKENS=32)
    stopped = int(second.stdout.readline())
    try:
        assert second.stdout.readline() == "went on\n"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)
    assert finished(first)[0] == "went on\n"
    finished(second)
    bound = min(int(share[:-1]) << 20, 4 * 32 * (64 << 10))  # four streams
    assert 0 < machine.status(1)["counters"]["held_most"] <= bound


def test_a_gateway_ends_in_order(machine, script):
    gateway = machine.start_gateway(1)
    exchange(machine, script)
    gateway.terminate()
    out, err = gateway.communicate(timeout=TIMEOUT)
    assert (gateway.returncode, out, err) == (0, "", "")


def test_a_fabric_that_is_not_there(machine):
    process = machine.start(
        machine.gateway(1), sys.executable, "-m", "pscompy_gateway", "run", "tcp@10.9.9.9:4470"
    )
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    *warnings, error = err.splitlines()
    assert "10.9.9.9" in error
    assert "Traceback" not in err
    # that it is the only network, that tcp cannot be used, and for the line that requests it
    assert len(warnings) <= 3


def test_what_a_gateway_tells_of_itself(machine, script):
    machine.start_gateway(1)
    exchange(machine, script)
    expect_soon(lambda: not machine.status(1)["members"], "the end of all members", TIMEOUT)
    told = machine.status(1)
    assert json.loads(json.dumps(told)) == told
    assert [one["transports"] for one in told["fabrics"]] == [["tcp"], ["tcp"]]
    assert told["counters"]["bytes"] >= 2 * 100 * 40_000
    assert told["counters"]["held"] == 0
