"""One of the two processes of another library that `pscompy perf --against` measures.

`python -m pscompy.cli.contender NAME FOLDER ROLE` receives jobs as lines of JSON through the socket
CONTROL in the folder, and answers each with the seconds it took. Between jobs the process sleeps,
so that it does not disturb the measurement of other libraries. Role 0 is the active process.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pscompy.cli.measure import HALVES, Calls, Halves, Job

CONTROL = "control"

_Pipe: TypeAlias = "connection.Connection[bytes, bytes]"

# One process of a library: its role, and a function that returns the Calls of a job.
End: TypeAlias = "tuple[int, Callable[[Job], Calls]]"
Library: TypeAlias = "Callable[[Path, int], AbstractContextManager[End]]"

_DATA, _UNRELATED = range(2)  # tags of messages


@contextmanager
def mpi4py(folder: Path, role: int) -> Iterator[End]:
    """mpi4py with numpy buffers. `role` is unused, because mpiexec has started both processes and
    assigned their ranks.

    A receive that no message matches is pending during the jobs, as in most programs.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    peer = 1 - world.rank
    unrelated = world.Irecv([np.empty(8, np.uint8), MPI.BYTE], peer, _UNRELATED)

    def make(job: Job) -> Calls:
        outgoing, incoming = np.ones((2, job.size), np.uint8)
        data, room = [outgoing, MPI.BYTE], [incoming, MPI.BYTE]
        return Calls(
            outgoing=outgoing,
            incoming=incoming,
            send=partial(world.Send, data, peer, _DATA),
            recv=partial(world.Recv, room, peer, _DATA),
            isend=partial(world.Isend, data, peer, _DATA),
            irecv=partial(world.Irecv, room, peer, _DATA),
            wait_all=MPI.Request.Waitall,
            acknowledge=partial(world.Send, [b"", MPI.BYTE], peer, _DATA),
            acknowledged=partial(world.Recv, [bytearray(), MPI.BYTE], peer, _DATA),
        )

    yield world.rank, make
    unrelated.Cancel()
    unrelated.Wait()


@contextmanager
def _pipe(folder: Path, role: int) -> Iterator[End]:
    """A connection of multiprocessing, as multiprocessing.Pipe makes it."""
    both = pipe(folder, role)

    def make(job: Job) -> Calls:
        outgoing, incoming = np.ones((2, max(job.size, 1)), np.uint8)
        send = partial(both.send_bytes, outgoing[: job.size].data)
        receive = partial(both.recv_bytes_into, incoming)
        return Calls(
            outgoing=outgoing,
            incoming=incoming,
            send=send,
            recv=receive,
            isend=send,
            irecv=receive,
            wait_all=lambda requests: None,
            acknowledge=partial(both.send_bytes, b""),
            acknowledged=both.recv_bytes,
        )

    with both:
        yield role, make


def pipe(folder: Path, role: int) -> _Pipe:
    """Connect the two processes through a socket in the folder; returns this role's end."""
    path = str(folder / "pipe")
    return _first_caller(path) if role == 0 else _call(path)


def _first_caller(path: str) -> _Pipe:
    with connection.Listener(path, "AF_UNIX") as listener:
        return listener.accept()


def _call(path: str) -> _Pipe:
    """Connect to role 0, again and again, because role 0 may not listen yet."""
    while True:
        try:
            return connection.Client(path, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)


LIBRARIES: dict[str, Library] = {"mpi4py": mpi4py, "pipe": _pipe}


def serve(library: Library, folder: Path, role: int, halves: Halves = HALVES) -> None:
    """Connect to the control socket and to the other process, send the role of this process, and
    run the jobs."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(folder / CONTROL))
        with control.makefile("rw") as lines, library(folder, role) as (number, make):
            print(number, file=lines, flush=True)
            for line in lines:
                job = Job(**json.loads(line))
                half = halves[job.test][number]
                print(half(job, make(job)) or 0.0, file=lines, flush=True)


def main(name: str, folder: str, role: str = "0") -> None:
    serve(LIBRARIES[name], Path(folder), int(role))


if __name__ == "__main__":
    main(*sys.argv[1:])
