"""No thread or event loop may sleep after its message has arrived. Many threads and loops of one
process wait at once, over the machine's transports and through a gateway; threads of C do so
through a gateway.

PSCOMPY_TEST_WAITS=1000000 runs more waits. `late_wakeups` counts waits that ended only by their
time slice although their request was complete; an event loop that misses its wake-up hangs.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import threading
import traceback
from pathlib import Path

import pytest
from namespaces import ROOT, TIMEOUT, finished

import pscompy
from pscompy import capi

WAITS = int(os.environ.get("PSCOMPY_TEST_WAITS", "2000"))
LONG = TIMEOUT + WAITS / 200
# A message that arrives just when the time slice ends looks late, too, on a busy machine. Runs of
# many waits are for machines that do nothing else.
LATE = 0 if WAITS > 2000 else 1


def stream(of, tag, first):
    """Where a stream sends to, and the tags of what it sends and receives."""
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


def looping(*args):
    asyncio.run(awaiting(*args))


def run(function, *args):
    try:
        function(*args)
    except BaseException:
        traceback.print_exc()
        os.abort()


def only_sends(world, rounds):
    """A loop awaits while this thread sends so much that it runs out of credit, and then is
    silent."""
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


def waits_everywhere(waits):
    with pscompy.World(config={"EAGER_WINDOW": "256k", "SPIN_US": 1}) as world:
        world.barrier()
        firsts = [True, False] if world.size == 1 else [world.rank == 0]
        rounds = waits // (2 * 4)
        threads = [
            threading.Thread(target=run, args=(function, world, 10 * number, first, rounds))
            for number, function in enumerate((blocking, looping, blocking, looping), 1)
            for first in firsts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if world.size == 2:
            if world.rank == 0:
                only_sends(world, 10 + waits // 10000)
            else:
                answers(world)
        world.barrier()
        print(world.rank, waits, world.stats["late_wakeups"], flush=True)


def waits_in_c(library, waits):
    lib = ctypes.CDLL(library)  # its calls run without the GIL
    with pscompy.World(config={"SPIN_US": 1}) as world:
        world.barrier()
        peer = world[1 - world.rank]
        addresses = capi.table(), capi.worker(world.session), capi.connection(peer)
        lib.waits_run(*map(ctypes.c_void_p, addresses), world.rank == 0, ctypes.c_long(waits))
        world.barrier()
        print(world.rank, waits, world.stats["late_wakeups"], flush=True)


@pytest.fixture
def library(tmp_path):
    made = tmp_path / "waits.so"
    source = Path(__file__).with_name("waits.c")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command = ["gcc", *flags, f"-I{ROOT}", "-o", made, source, "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return made


def check(out: str, ranks: int) -> None:
    """Check what each rank printed: its waits, and how many of them ended late."""
    told = sorted(tuple(map(int, line.split())) for line in out.splitlines())
    assert [it[:2] for it in told] == [(rank, WAITS) for rank in range(ranks)]
    assert sum(late for *_, late in told) <= LATE, told


@pytest.mark.parametrize("transport", ["shm", "tcp", "loop"])
def test_nobody_sleeps_beside_his_message(run, transport, script):
    ranks = 1 if transport == "loop" else 2
    others = {"shm": {"PSP_TCP": "0"}, "tcp": {"PSP_SHM": "0"}, "loop": {}}[transport]
    out, _ = finished(run.start("-n", ranks, script(waits_everywhere, WAITS), env=others), LONG)
    check(out, ranks)


def test_nor_behind_a_gateway(machine, script):
    machine.start_gateway(1)
    program = script(waits_everywhere, WAITS)
    second = machine.ranks(2, 1, program)
    first = machine.ranks(1, 1, program)
    out = finished(first, LONG)[0] + finished(second, LONG)[0]
    check(out, 2)


def test_nor_does_a_thread_of_c_behind_a_gateway(machine, script, library):
    machine.start_gateway(1)
    program = script(waits_in_c, str(library), WAITS)
    second = machine.ranks(2, 1, program)
    first = machine.ranks(1, 1, program)
    check(finished(first, LONG)[0] + finished(second, LONG)[0], 2)
