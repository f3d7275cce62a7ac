"""Every library that is measured, by the name with which bench/rank.py opens it.

pscompy and mpi4py are opened as ranks. Further ways of calling them change what the Calls of a job
do; the others connect two processes only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import objects
from bench.connections import beside
from bench.sockets import Bytes, sockets, streams
from pscompy.cli.libraries import Library, Opening, Ranks, mpi4py
from pscompy.cli.measure import Calls, Job

if TYPE_CHECKING:
    from pscompy import Communicator, Connection

_PAGE = 4096
_WILD = 10  # of so many receives, one has no source


@dataclass(frozen=True)
class Own(Ranks):
    world: Communicator


def of_world(world: Communicator) -> Own:
    from pscompy import ANY_SOURCE, Request, wait_all

    return Own(
        rank=world.rank,
        calls=lambda job: _plain(world, world[1 - world.rank], job),
        size=world.size,
        send=world.send,
        recv=world.recv,
        isend=world.isend,
        irecv=world.irecv,
        wait_all=wait_all,
        cancel=Request.cancel,
        barrier=world.barrier,
        buffer=lambda array: array,
        any_source=ANY_SOURCE,
        world=world,
    )


@contextmanager
def pscompy(folder: Path, role: int) -> Iterator[Own]:
    """Ranks of a World, which connect when they are used."""
    from pscompy import World

    with World() as world:
        yield of_world(world)


Make = Callable[["Communicator", "Connection", Job], Calls]


@contextmanager
def _over(transport: str, make: Make, folder: Path, role: int) -> Iterator[Own]:
    """Ranks of a World, whose connection must use this transport."""
    with pscompy(folder, role) as own:
        connection = own.world[own.peer]
        connection.open()
        if connection.transport != transport:
            raise SystemExit(f"connected over {connection.transport} instead of {transport}")
        yield replace(own, calls=partial(make, own.world, connection))


# ---- ways of calling a library ------------------------------------------------------------------


def _plain(comm: Communicator, connection: Connection, job: Job) -> Calls:
    from pscompy.cli.perf_pair import calls

    return calls(connection, job)


def _awaited(comm: Communicator, connection: Connection, job: Job) -> Calls:
    """Calls whose `send` and `recv` return requests to be awaited."""
    calls = _plain(comm, connection, job)
    return replace(calls, send=calls.isend, recv=calls.irecv)


def _lent(comm: Communicator, connection: Connection, job: Job) -> Calls:
    """Each message is a new block of the pool, which is lent and not waited for; the receiver reads
    a view of it."""

    def send() -> None:
        connection.isend(comm.empty(job.size, np.uint8), lend=True)

    def recv() -> None:
        _read(connection.recv_view(0))

    return replace(_plain(comm, connection, job), send=send, recv=recv)


def _reading(ranks: Ranks, calls: Calls) -> Calls:
    """The receiver reads each message as the one of `_lent` does."""

    def recv() -> None:
        calls.recv()
        _read(calls.incoming)

    return replace(calls, recv=recv)


def _read(array: Bytes) -> None:
    """Read a byte of each page."""
    array[::_PAGE].tobytes()


def _wild(ranks: Ranks, calls: Calls) -> Calls:
    """Every tenth receive is from any source."""
    irecv = partial(ranks.irecv, ranks.buffer(calls.incoming), ranks.any_source, 0)
    turns = cycle([calls.irecv] * (_WILD - 1) + [irecv])
    return replace(calls, irecv=lambda: next(turns)())


@contextmanager
def _changed(
    opening: Callable[..., Any], change: Callable[[Ranks, Calls], Calls], folder: Path, role: int
) -> Iterator[Library]:
    with opening(folder, role) as ranks:
        yield replace(ranks, calls=lambda job: change(ranks, ranks.calls(job)))


@contextmanager
def _with_loop(opening: Opening, folder: Path, role: int) -> Iterator[Library]:
    asyncio.set_event_loop(asyncio.new_event_loop())
    with opening(folder, role) as library:
        yield library


@contextmanager
def _none(folder: Path, role: int) -> Iterator[None]:
    yield None


LIBRARIES: dict[str, Callable[[Path, int], Any]] = {
    "pscompy": pscompy,
    "pscompy-shm": partial(_over, "shm", _plain),
    "pscompy-tcp": partial(_over, "tcp", _plain),
    "pscompy-portals": partial(_over, "portals", _plain),
    "pscompy-lent": partial(_over, "shm", _lent),
    "pscompy-wild": partial(_changed, partial(_over, "shm", _plain), _wild),
    "pscompy-shm-beside": partial(_over, "shm", beside),
    "pscompy-tcp-beside": partial(_over, "tcp", beside),
    "pscompy-asyncio": partial(_with_loop, partial(_over, "shm", _awaited)),
    **{
        f"pscompy-{transport}-{name}": partial(_over, transport, make)
        for transport in ("shm", "tcp")
        for name, make in objects.WAYS.items()
    },
    "mpi4py": mpi4py,
    "mpi4py-read": partial(_changed, mpi4py, _reading),
    "mpi4py-wild": partial(_changed, mpi4py, _wild),
    "mpi4py-pickle": partial(objects.mpi4py, "pickle"),
    "mpi4py-pkl5": partial(objects.mpi4py, "pkl5"),
    "multiprocessing": objects.multiprocessing,
    "zmq": objects.zmq,
    "ucxx": objects.ucxx,
    "sockets": partial(sockets, "inet", True),
    "blocking-inet": partial(sockets, "inet", False),
    "blocking-unix": partial(sockets, "unix", False),
    "streams": streams,
    "none": _none,
}
