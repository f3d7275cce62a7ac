"""Other libraries that `pscompy perf --against` measures: one of the two processes of each.

`python -m pscompy.cli.contender NAME FOLDER ROLE` gets its jobs, and answers with seconds, as
lines of JSON through the socket CONTROL in the folder. It sleeps between them, so that it takes
no time from what is measured meanwhile. Role 0 is the active one.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import TextIO, TypeAlias

from pscompy.cli.measure import Calls, Job, active, passive

CONTROL = "control"

_Pipe: TypeAlias = "connection.Connection[bytes, bytes]"
_Library = Callable[[Path, int], tuple[int, Callable[[Job], Calls]]]


def _mpi4py(folder: Path, role: int) -> tuple[int, Callable[[Job], Calls]]:
    """mpi4py with buffers; mpiexec has started both processes and numbered them."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    peer = 1 - world.rank

    def make(job: Job) -> Calls:
        outgoing, incoming = bytearray(job.size), bytearray(job.size)
        data, room = [outgoing, MPI.BYTE], [incoming, MPI.BYTE]
        return Calls(
            send=partial(world.Send, data, peer),
            recv=partial(world.Recv, room, peer),
            isend=partial(world.Isend, data, peer),
            irecv=partial(world.Irecv, room, peer),
            wait_all=MPI.Request.Waitall,
            acknowledge=partial(world.Send, [b"", MPI.BYTE], peer),
            acknowledged=partial(world.Recv, [bytearray(), MPI.BYTE], peer),
        )

    return world.rank, make


def _pipe(folder: Path, role: int) -> tuple[int, Callable[[Job], Calls]]:
    """What multiprocessing.Pipe gives."""
    path = str(folder / "pipe")
    pipe = _first_caller(path) if role == 0 else _call(path)

    def make(job: Job) -> Calls:
        outgoing, incoming = bytearray(job.size), bytearray(max(job.size, 1))
        send, receive = partial(pipe.send_bytes, outgoing), partial(pipe.recv_bytes_into, incoming)
        return Calls(
            send=send,
            recv=receive,
            isend=send,
            irecv=receive,
            wait_all=lambda requests: None,
            acknowledge=partial(pipe.send_bytes, b""),
            acknowledged=pipe.recv_bytes,
        )

    return role, make


def _first_caller(path: str) -> _Pipe:
    with connection.Listener(path, "AF_UNIX") as listener:
        return listener.accept()


def _call(path: str) -> _Pipe:
    """Role 0 was started at the same time, and may not listen yet."""
    while True:
        try:
            return connection.Client(path, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)


LIBRARIES: dict[str, _Library] = {"mpi4py": _mpi4py, "pipe": _pipe}


def main(name: str, folder: str, role: str = "0") -> None:
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(Path(folder) / CONTROL))
        with control.makefile("rw") as lines:
            _serve(*LIBRARIES[name](Path(folder), int(role)), lines)


def _serve(role: int, make: Callable[[Job], Calls], control: TextIO) -> None:
    """Say who this is, and do what the lines say."""
    print(role, file=control, flush=True)
    for line in control:
        job = Job(**json.loads(line))
        half = active if role == 0 else passive
        print(half(job, make(job)) or 0.0, file=control, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
