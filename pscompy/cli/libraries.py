"""Libraries as objects, the same for `pscompy perf --against` and for the benchmarks.

A library is opened in each process that it connects. An opening gets a folder that both processes
see, and a role; a launcher that has assigned ranks makes the role unused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pscompy.cli.measure import Calls, Job

DATA = 0  # the tag of messages

_Pipe: TypeAlias = "connection.Connection[bytes, bytes]"


@dataclass(frozen=True)
class Library:
    """A library in one of two processes; `calls` makes the Calls of a job."""

    rank: int
    calls: Callable[[Job], Calls]


@dataclass(frozen=True)
class Ranks(Library):
    """A library in one of its ranks. Messages take (array, rank, tag); `buffer` makes of an array
    what the library calls with the least cost."""

    size: int
    send: Callable[..., Any]
    recv: Callable[..., Any]
    isend: Callable[..., Any]
    irecv: Callable[..., Any]
    wait_all: Callable[[list[Any]], Any]
    cancel: Callable[[Any], Any]
    barrier: Callable[[], Any]
    buffer: Callable[[Any], Any]
    any_source: int

    @property
    def peer(self) -> int:
        """The other one of two ranks."""
        return 1 - self.rank


Opening: TypeAlias = "Callable[[Path, int], AbstractContextManager[Library]]"


@contextmanager
def mpi4py(folder: Path, role: int) -> Iterator[Ranks]:
    """mpi4py with numpy buffers, with an explicit type in the Calls of a job."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    peer = 1 - world.rank

    def typed(array: Any) -> list[Any]:
        return [array, MPI.BYTE]

    def calls(job: Job) -> Calls:
        outgoing, incoming = np.ones((2, job.size), np.uint8)
        data, room = typed(outgoing), typed(incoming)
        return Calls(
            outgoing=outgoing,
            incoming=incoming,
            send=partial(world.Send, data, peer, DATA),
            recv=partial(world.Recv, room, peer, DATA),
            isend=partial(world.Isend, data, peer, DATA),
            irecv=partial(world.Irecv, room, peer, DATA),
            wait_all=MPI.Request.Waitall,
            acknowledge=partial(world.Send, typed(b""), peer, DATA),
            acknowledged=partial(world.Recv, typed(bytearray()), peer, DATA),
        )

    def cancel(request: Any) -> None:
        request.Cancel()
        request.Wait()

    yield Ranks(
        rank=world.rank,
        calls=calls,
        size=world.size,
        send=world.Send,
        recv=world.Recv,
        isend=world.Isend,
        irecv=world.Irecv,
        wait_all=MPI.Request.Waitall,
        cancel=cancel,
        barrier=world.Barrier,
        buffer=typed,
        any_source=MPI.ANY_SOURCE,
    )


@contextmanager
def multiprocessing(folder: Path, role: int) -> Iterator[Library]:
    """A connection of multiprocessing, as multiprocessing.Pipe makes it."""
    both = pipe(folder, role)

    def calls(job: Job) -> Calls:
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
        yield Library(role, calls)


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
