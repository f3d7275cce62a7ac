"""A hostile or broken process cannot harm a gateway or the processes that use it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from namespaces import PORT, TIMEOUT, finished

EXCHANGE = """\
import os, sys, pscompy
with pscompy.World() as world:
    other = (world.rank + world.size // 2) % world.size
    for number in range(100):
        request = world.isend(number.to_bytes(2, "little") * 20_000, dest=other)
        assert world.recv(source=other) == number.to_bytes(2, "little") * 20_000
        request.wait()
    os.write(1, b"done\\n")
"""

STALL = """\
import os, signal, pscompy
with pscompy.World() as world:
    if world.rank == 0:
        world.send(b"hello", dest=2)
        sends = [world.isend(bytes([n]) * 100_000, dest=2) for n in range(200)]
        for _ in range(100):
            world.send(bytes(50_000), dest=3)
        pscompy.wait_all(sends)
    elif world.rank == 2:
        world.recv(source=0)
        os.write(1, b"%d\\n" % os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)
        for n in range(200):
            assert world.recv(source=0) == bytes([n]) * 100_000
    else:
        other = 4 - world.rank
        for number in range(300):
            request = world.isend(bytes(50_000), dest=other)
            world.recv(source=other)
            request.wait()
        if world.rank == 3:
            for _ in range(100):
                world.recv(source=0)
        os.write(1, b"went on\\n")
"""

GARBAGE = """\
import os, socket, sys
for where in sys.argv[1:]:
    host, _, port = where.rpartition(":")
    for size in (1, 40, 4000, 100_000):
        with socket.create_connection((host.strip("[]"), int(port)), timeout=60) as sock:
            try:
                sock.sendall(os.urandom(size))
            except OSError:
                pass
"""

NONSENSE = """\
import asyncio, json, os, sys
from pscompy_gateway import native
from pscompy_gateway.trunk import Trunk, session
from pscompy import PscomError

async def ends(victim, frame):
    # The gateway wants no more of who has sent this.
    victim.connection.isend(frame)
    try:
        while True:
            await victim.receive()
    except PscomError:
        print("ended")

async def main(address):
    with session({"PSP_RENDEZVOUS": "inf"}) as here:
        async def trunk():
            connection = here.connect(address)
            await connection.iopen()
            return Trunk(connection)
        for frame in (
            b"no json", b"[]", b"{}", b'{"kind": 5}', b'{"kind": "nothing"}',
            b'{"kind": "tunnel"}', b'{"kind": "hello", "node": "x", "module": 1}',
            b'{"kind": "hello", "node": -1, "module": 1}', b'{"kind": "modules", "modules": 1}',
            b'{"kind": "join", "name": "x"}', b"[" * 5000, b"[" * 60_000,
            b'{"kind": "hello", "node": 1, "module": 1, "names": ' + b"[" * 300 + b"]" * 300 + b"}",
            b'{"kind": "hello", "node": Infinity, "module": 1}',
            b'{"kind": "hello", "node": 5, "module": 99999}',
        ):
            await ends(await trunk(), frame)
        for frame in (
            b'{"kind": "gone", "about": 12345}', b'{"kind": "leaving"}',
            b'{"kind": "modules", "modules": {"1": 0}}', b'{"kind": "found", "node": 12345}',
            b'{"kind": "hello", "node": 78, "module": 1}',
            b'{"kind": "tunnel", "module": 1, "node": 1, "from_node": 12345, "from_module": 1}',
            b'{"kind": "find", "module": 1, "node": 1, "from_node": 77, "from_module": 2}',
        ):
            known = await trunk()
            known.send({"kind": "hello", "node": 77, "module": 1})
            await ends(known, frame)
        asking = await trunk()
        asking.send({"kind": "hello", "node": 12345, "module": 1})
        data = here.connect((await asking.receive())["data"])
        await data.iopen()
        for size in (0, 1, 55, 56, 57, 200):
            for _ in range(50):
                data.am_send(0x67617465, os.urandom(size), os.urandom(100))
        data.am_send(77, b"x", b"nobody has this handler")
        asking.send({"kind": "status"})
        print((await asking.receive())["kind"])

asyncio.run(main(sys.argv[1]))
"""


def exchange(machine, script):
    """Two processes, one in each module, exchange messages through the gateway."""
    second = machine.ranks(2, 1, script(EXCHANGE, "exchange.py"))
    assert finished(machine.ranks(1, 1, script(EXCHANGE, "exchange.py")))[0] == "done\n"
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
    finished(machine.python(1, script(GARBAGE), *reachable))
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
    asking = machine.python(1, script(NONSENSE), f"10.1.1.9:{PORT}", PSP_GW_SERVER="")
    *ended, last = finished(asking)[0].splitlines()
    assert (set(ended), last) == ({"ended"}, "status")
    exchange(machine, script)
    gateway.terminate()
    _, err = gateway.communicate(timeout=TIMEOUT)
    assert gateway.returncode == 0
    assert "Traceback" not in err
    assert sum("sent" in line for line in err.splitlines()) == len(ended), err


@pytest.mark.parametrize("share", ["1M", "32M"])
def test_a_receiver_that_stops(machine, script, share):
    """A gateway holds for a stopped receiver at most its granted bytes or its share; other
    streams continue, and nothing is lost."""
    machine.start_gateway(1, f"--share={share}", f"--memory={share}")
    second = machine.ranks(2, 2, script(STALL), PSP_GW_TOKENS=32)
    first = machine.ranks(1, 2, script(STALL), PSP_GW_TOKENS=32)
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
    # one warning that tcp cannot be used, and one for the line that requests it
    assert len(warnings) <= 2


def test_what_a_gateway_tells_of_itself(machine, script):
    machine.start_gateway(1)
    exchange(machine, script)
    deadline = time.monotonic() + TIMEOUT
    while (told := machine.status(1))["members"]:  # members may still be leaving
        assert time.monotonic() < deadline
    assert json.loads(json.dumps(told)) == told
    assert [one["transports"] for one in told["fabrics"]] == [["tcp"], ["tcp"]]
    assert told["counters"]["bytes"] >= 2 * 100 * 40_000
    assert told["counters"]["held"] == 0
