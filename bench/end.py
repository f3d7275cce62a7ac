"""One of the two processes of a pair, of pscompy or of a peer library.

`python -m bench.end LIBRARY FOLDER [ROLE]` is started by the library's own launcher if it has one.
The folder and the control socket in it are described in pscompy/cli/contender.py. The process is
pinned to a core before it imports the library, in the same way for all libraries.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import objects
from bench.computing import COMPUTING_HALVES
from bench.halves import MORE_HALVES
from bench.native import cores
from bench.sockets import Bytes, sockets, streams
from pscompy.cli import contender
from pscompy.cli.contender import End, Library
from pscompy.cli.measure import Calls, Job

if TYPE_CHECKING:
    from pscompy import Connection, World

_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")  # variables in which launchers pass the rank
_UNRELATED = 2  # a tag that no message has
_PAGE = 4096
_WILD = 10  # of so many receives, one has no source

Make = Callable[["World", "Connection", Job], Calls]


@contextmanager
def pscompy(transport: str, make: Make, folder: Path, role: int) -> Iterator[End]:
    """Ranks of a World, whose connection must use this transport.

    As with the peer libraries, a receive that no message matches is pending.
    """
    from pscompy import World

    with World() as world:
        connection = world[1 - world.rank]
        connection.open()
        if connection.transport != transport:
            raise SystemExit(f"connected over {connection.transport} instead of {transport}")
        unrelated = connection.irecv(np.empty(8, np.uint8), _UNRELATED)
        yield world.rank, partial(make, world, connection)
        unrelated.cancel()


def _plain(world: World, connection: Connection, job: Job) -> Calls:
    from pscompy.cli.perf_pair import calls

    return calls(connection, job)


def _awaited(world: World, connection: Connection, job: Job) -> Calls:
    """Calls whose `send` and `recv` return requests to be awaited."""
    calls = _plain(world, connection, job)
    return replace(calls, send=calls.isend, recv=calls.irecv)


def _lent(world: Any, connection: Any, job: Job) -> Calls:
    """Each message is a new block of the pool, which is lent and not waited for; the receiver reads
    a view of it."""

    def send() -> None:
        connection.isend(world.empty(job.size, np.uint8), lend=True)

    def recv() -> None:
        _read(connection.recv_view(0))

    return replace(_plain(world, connection, job), send=send, recv=recv)


def _read(array: Bytes) -> None:
    """Read a byte of each page."""
    array[::_PAGE].tobytes()


def _wild(world: World, connection: Connection, job: Job) -> Calls:
    """Every tenth receive is from any source."""
    from pscompy import ANY_SOURCE

    calls = _plain(world, connection, job)
    return _with_wild(calls, partial(world.irecv, calls.incoming, ANY_SOURCE, 0))


def _with_wild(calls: Calls, irecv: Callable[[], Any]) -> Calls:
    turns = cycle([calls.irecv] * (_WILD - 1) + [irecv])
    return replace(calls, irecv=lambda: next(turns)())


@contextmanager
def _mpi4py_wild(folder: Path, role: int) -> Iterator[End]:
    with contender.mpi4py(folder, role) as (number, make):
        from mpi4py import MPI

        def wild(job: Job) -> Calls:
            calls = make(job)
            room = [calls.incoming, MPI.BYTE]
            return _with_wild(calls, partial(MPI.COMM_WORLD.Irecv, room, MPI.ANY_SOURCE, 0))

        yield number, wild


@contextmanager
def _mpi4py_read(folder: Path, role: int) -> Iterator[End]:
    """mpi4py, with a receiver that reads each message as the one of `_lent` does."""
    with contender.mpi4py(folder, role) as (number, make):

        def reading(job: Job) -> Calls:
            calls = make(job)

            def recv() -> None:
                calls.recv()
                _read(calls.incoming)

            return replace(calls, recv=recv)

        yield number, reading


@contextmanager
def _with_loop(library: Library, folder: Path, role: int) -> Iterator[End]:
    asyncio.set_event_loop(asyncio.new_event_loop())
    with library(folder, role) as end:
        yield end


LIBRARIES: dict[str, Library] = {
    "pscompy-shm": partial(pscompy, "shm", _plain),
    "pscompy-tcp": partial(pscompy, "tcp", _plain),
    "pscompy-portals": partial(pscompy, "portals", _plain),
    "pscompy-lent": partial(pscompy, "shm", _lent),
    "pscompy-wild": partial(pscompy, "shm", _wild),
    "pscompy-asyncio": partial(_with_loop, partial(pscompy, "shm", _awaited)),
    **{
        f"pscompy-{transport}-{name}": partial(pscompy, transport, make)
        for transport in ("shm", "tcp")
        for name, make in {
            "objects": objects.plain,
            "in-band": objects.in_band,
            "apart": objects.apart,
            "registered": objects.registered,
            "objects-lent": objects.lent,
        }.items()
    },
    "mpi4py-pickle": partial(objects.mpi4py, "pickle"),
    "mpi4py-pkl5": partial(objects.mpi4py, "pkl5"),
    "multiprocessing": objects.multiprocessing,
    "zmq": objects.zmq,
    "ucxx": objects.ucxx,
    "mpi4py": contender.mpi4py,
    "mpi4py-read": _mpi4py_read,
    "mpi4py-wild": _mpi4py_wild,
    "sockets": partial(sockets, "inet", True),
    "blocking-inet": partial(sockets, "inet", False),
    "blocking-unix": partial(sockets, "unix", False),
    "streams": streams,
}


def main(name: str, folder: str, role: str = "") -> None:
    number = int(role or next(os.environ[name] for name in _RANKS if name in os.environ))
    os.sched_setaffinity(0, {cores()[number]})
    contender.serve(LIBRARIES[name], Path(folder), number, MORE_HALVES | COMPUTING_HALVES)


if __name__ == "__main__":
    main(*sys.argv[1:])
