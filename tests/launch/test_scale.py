"""Connections that are only declared cost no more than a small record; used ones open at once."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys

from pscompy.launch.pmi import Server
from pscompy.world.bootstrap.pmi1_wire import LineBuffer
from tests.names import A_KEY

LARGE = 10_000

WORLD = """\
import gc, os, pscompy
def connections():
    return sum(isinstance(it, pscompy.Connection) for it in gc.get_objects())
world = pscompy.World()
before = connections()
world[9_999], world[1], world[9_999]
print(len(world), before, connections(), flush=True)
os._exit(0)
"""

DECLARED = f"""\
import ctypes, gc, os, pscompy
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a huge page would be counted whole
def private():
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(it.split()[1]) for it in rollup if it.startswith("Private_Dirty"))
session = pscompy.Session()
warm = [session.connect("127.0.0.1:5000") for _ in range(1_000)]
gc.collect()
before = private()
declared = [session.connect("127.0.0.1:5000") for _ in range({LARGE})]
gc.collect()
print((private() - before) * 1024 / {LARGE})
del warm, declared
gc.collect()
assert not any(isinstance(it, pscompy.Connection) for it in gc.get_objects())
"""

# The last rank stops itself and writes its pid to a file.
TOGETHER = """\
import os, signal, sys, time, pscompy
file = sys.argv[1]

def stopped_rank():
    while True:
        if os.path.exists(file) and open(file).read().endswith("\\n"):
            pid = int(open(file).read())
            if open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "T":
                return pid
        time.sleep(0.01)

with pscompy.World() as world:
    if world.rank == world.size - 1:
        with open(file, "w") as told:
            print(os.getpid(), file=told)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif world.rank == 0:
        pid = stopped_rank()
        slow = world[world.size - 1].iopen()
        quick = [world[rank].iopen() for rank in range(1, world.size - 1)]
        try:
            pscompy.wait_all(quick, 60)
            print(len(quick), slow.test())
        finally:
            os.kill(pid, signal.SIGCONT)
        slow.wait(60)
        print(world.stats["connections_up"])
"""


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


def test_a_world_of_10000_ranks_is_10000_promises():
    """The other ranks are already in the barrier; only the memory and connections of rank 0
    count."""
    server = Server(LARGE, "job")
    for rank in range(1, LARGE):
        server.receive(rank, b"cmd=barrier_in")
    ours, theirs = socket.socketpair()
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PMI", "PSP_"))}
    told = {"PMI_FD": str(theirs.fileno()), "PMI_RANK": "0", "PMI_SIZE": str(LARGE)}
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", WORLD],
            env={**kept, **told, "PSP_KEY": A_KEY},
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
        serve(ours, server, process)
    assert process.communicate()[0] == f"{LARGE} 0 2\n"


def test_a_declared_connection_takes_less_than_a_kibibyte():
    ended = subprocess.run(
        [sys.executable, "-c", DECLARED], capture_output=True, text=True, timeout=250
    )
    assert ended.returncode == 0, ended.stderr
    assert 0 < float(ended.stdout) < 1024


def test_connections_come_up_beside_one_that_does_not(run, script, tmp_path):
    done = run("-n", 8, script(TOGETHER), tmp_path / "who")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "6 False\n7\n"
