"""No thread or event loop may sleep after its message has arrived. Many threads and loops of one
process wait at once, over the machine's transports and through a gateway; threads of C do so
through a gateway.

PSCOMPY_TEST_WAITS=1000000 runs more waits. `late_wakeups` counts waits that ended only by their
time slice although their request was complete; an event loop that misses its wake-up hangs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from namespaces import ROOT, TIMEOUT, finished

WAITS = int(os.environ.get("PSCOMPY_TEST_WAITS", "2000"))
LONG = TIMEOUT + WAITS / 200

PROGRAM = """\
import asyncio, os, threading, pscompy
waits, spin = int(os.environ["WAITS"]), 1
failed = []

def stream(of, tag, first):
    "Whom it sends to, and the tags of what it sends and gets."
    return {"dest": of.size - 1 - of.rank, "tag": tag + first}, {"tag": tag + (not first)}

def blocking(world, tag, first, rounds):
    out, got = stream(world, tag, first)
    for i in range(rounds):
        if first:
            world.send(b"%d" % i, **out)
        assert int(world.recv(**got)) == i
        if not first:
            world.send(b"%d" % i, **out)

async def awaiting(world, tag, first, rounds):
    out, got = stream(world, tag, first)
    for i in range(rounds):
        receive = world.irecv(**got)
        if first:
            await world.isend(b"%d" % i, **out)
        assert int(await receive) == i
        if not first:
            await world.isend(b"%d" % i, **out)

def loop(*args):
    asyncio.run(awaiting(*args))

def run(function, *args):
    try:
        function(*args)
    except BaseException as error:
        failed.append(error)
        os.abort()

def only_sends(world, rounds):
    "A loop awaits while this thread sends so much that it runs out of credit, and then is silent."
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    async def one():
        return await world.irecv(tag=7)
    for i in range(rounds):
        answer = asyncio.run_coroutine_threadsafe(one(), loop)
        sent = [world.isend(b"12345678", dest=1, tag=2) for _ in range(1000 + 700 * i % 5000)]
        sent.append(world.isend(b"answer", dest=1, tag=2))
        assert answer.result() == b"here"
        for request in sent:
            request.wait()
    world.send(b"stop", dest=1, tag=2)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()

def answers(world):
    while (message := bytes(world.recv(tag=2))) != b"stop":
        if message == b"answer":
            threading.Event().wait(0.01)
            world.send(b"here", dest=0, tag=7)

config = {"EAGER_WINDOW": "256k", "SPIN_US": 1}
with pscompy.World(config=config) as world:
    world.barrier()
    firsts = [True, False] if world.size == 1 else [world.rank == 0]
    rounds = waits // (2 * 4)
    threads = [
        threading.Thread(target=run, args=(function, world, 10 * number, first, rounds))
        for number, function in enumerate((blocking, loop, blocking, loop), 1)
        for first in firsts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if world.size == 2:
        only_sends(world, 10 + waits // 10000) if world.rank == 0 else answers(world)
    world.barrier()
    stats = world.stats
    print(world.rank, waits, stats["late_wakeups"], flush=True)
"""


IN_C = """\
import ctypes, os, pscompy
from pscompy import capi

lib = ctypes.CDLL(os.environ["WAITS_LIBRARY"])  # its calls run without the GIL
with pscompy.World(config={"SPIN_US": 1}) as world:
    world.barrier()
    waits, peer = int(os.environ["WAITS"]), world[1 - world.rank]
    session = getattr(world, "session", world)
    addresses = capi.table(), capi.worker(session), capi.connection(peer)
    lib.waits_run(*map(ctypes.c_void_p, addresses), world.rank == 0, ctypes.c_long(waits))
    world.barrier()
    print(world.rank, waits, world.stats["late_wakeups"], flush=True)
"""


@pytest.fixture
def library(tmp_path):
    made = tmp_path / "waits.so"
    source = Path(__file__).with_name("waits.c")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command = ["gcc", *flags, f"-I{ROOT}", "-o", made, source, "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return made


def check(out: str, ranks: int) -> None:
    assert sorted(out.splitlines()) == [f"{rank} {WAITS} 0" for rank in range(ranks)]


@pytest.mark.parametrize("transport", ["shm", "tcp", "loop"])
def test_nobody_sleeps_beside_his_message(transport, script):
    ranks = 1 if transport == "loop" else 2
    others = {"shm": {"PSP_TCP": "0"}, "tcp": {"PSP_SHM": "0"}, "loop": {}}[transport]
    kept = {name: it for name, it in os.environ.items() if not name.startswith("PSP_")}
    command = [sys.executable, "-m", "pscompy", "run", "-n", str(ranks), str(script(PROGRAM))]
    env = {**kept, "PYTHONPATH": str(ROOT), "WAITS": str(WAITS), **others}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=LONG, check=False
    )
    assert done.returncode == 0, done.stderr
    check(done.stdout, ranks)


def test_nor_behind_a_gateway(machine, script):
    machine.start_gateway(1)
    program = script(PROGRAM)
    second = machine.ranks(2, 1, program, WAITS=str(WAITS))
    first = machine.ranks(1, 1, program, WAITS=str(WAITS))
    out = finished(first, LONG)[0] + finished(second, LONG)[0]
    check(out, 2)


def test_nor_does_a_thread_of_c_behind_a_gateway(machine, script, library):
    machine.start_gateway(1)
    program, widened = script(IN_C), {"WAITS": str(WAITS), "WAITS_LIBRARY": str(library)}
    second = machine.ranks(2, 1, program, **widened)
    first = machine.ranks(1, 1, program, **widened)
    check(finished(first, LONG)[0] + finished(second, LONG)[0], 2)
