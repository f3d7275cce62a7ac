"""Connections that are only declared cost no more than a small record; used ones open at once."""

from __future__ import annotations

import ctypes
import gc
import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pscompy
from pscompy.world.bootstrap.pmi1_server import Server
from pscompy.world.bootstrap.pmi1_wire import LineBuffer
from tests.names import A_KEY
from tests.waiting import expect_soon, state_of

LARGE = 10_000


def connections():
    return sum(isinstance(it, pscompy.Connection) for it in gc.get_objects())


def uses_two_of_many():
    world = pscompy.World()
    before = connections()
    assert world[9_999] is world[9_999] is not world[1]
    print(len(world), before, connections(), flush=True)
    os._exit(0)


def private_kib():
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(it.split()[1]) for it in rollup if it.startswith("Private_Dirty"))


def declares_many():
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a huge page is counted whole
    session = pscompy.Session()
    warm = [session.connect("127.0.0.1:5000") for _ in range(1_000)]
    gc.collect()
    before = private_kib()
    declared = [session.connect("127.0.0.1:5000") for _ in range(LARGE)]
    gc.collect()
    print((private_kib() - before) * 1024 / LARGE)
    del warm, declared
    gc.collect()
    assert connections() == 0


def stopped_rank(file):
    """Wait until the rank that wrote its pid to `file` has stopped; returns the pid."""
    told = Path(file)
    expect_soon(lambda: told.exists() and told.read_text().endswith("\n"))
    pid = int(told.read_text())
    expect_soon(lambda: state_of(pid) == "T")
    return pid


def opens_connections_together(file):
    """The last rank stops itself and writes its pid to `file`."""
    with pscompy.World() as world:
        if world.rank == world.size - 1:
            with open(file, "w") as told:
                print(os.getpid(), file=told)
            os.kill(os.getpid(), signal.SIGSTOP)
        elif world.rank == 0:
            pid = stopped_rank(file)
            slow = world[world.size - 1].iopen()
            quick = [world[rank].iopen() for rank in range(1, world.size - 1)]
            try:
                pscompy.wait_all(quick, 60)
                print(len(quick), slow.test())
            finally:
                os.kill(pid, signal.SIGCONT)
            slow.wait(60)
            print(world.stats["connections_up"])


def serve(link: socket.socket, server: Server, process: subprocess.Popen[str]) -> None:
    """Serve rank 0 as its launcher until its process ends."""
    lines = LineBuffer()
    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        while process.poll() is None:
            if not selector.select(0.05):
                continue
            for line in lines.feed(link.recv(65536)):
                for rank, reply in server.receive(0, line):
                    if rank == 0:
                        link.sendall(reply)


def test_a_world_of_10000_ranks_is_10000_promises(script):
    """The other ranks are already in the barrier; only the memory and connections of rank 0
    count."""
    server = Server([LARGE], "job")
    for rank in range(1, LARGE):
        server.receive(rank, b"cmd=barrier_in")
    ours, theirs = socket.socketpair()
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PMI", "PSP_"))}
    told = {"PMI_FD": str(theirs.fileno()), "PMI_RANK": "0", "PMI_SIZE": str(LARGE)}
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, script(uses_two_of_many)],
            env={**kept, **told, "PSP_KEY": A_KEY},
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
        serve(ours, server, process)
    assert process.communicate()[0] == f"{LARGE} 0 2\n"


def test_a_declared_connection_takes_less_than_a_kibibyte(script):
    ended = subprocess.run(
        [sys.executable, script(declares_many)], capture_output=True, text=True, timeout=250
    )
    assert ended.returncode == 0, ended.stderr
    # some objects of newer Pythons are larger
    assert 0 < float(ended.stdout) < (1024 if sys.version_info < (3, 13) else 1100)


def test_connections_come_up_beside_one_that_does_not(run, script, tmp_path):
    done = run("-n", 8, script(opens_connections_together, str(tmp_path / "who")))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "6 False\n7\n"
