"""Cases of many connections between two ranks: opening them, their memory, and a message beside
them."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.native import resident
from bench.rows import Figures
from pscompy.cli.measure import Calls, Job

if TYPE_CHECKING:
    from bench.libraries import Own
    from pscompy import Communicator, Connection

_ENOUGH = 60.0  # seconds
_NEVER = 1  # a tag that no message has


def _raise_the_limit_of_descriptors() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def _toward(own: Own, transport: str) -> Iterator[Callable[[], Connection]]:
    """A function that makes a connection of sessions besides those of the World: rank 0 connects,
    rank 1 accepts."""
    from pscompy import Session

    _raise_the_limit_of_descriptors()
    told = own.world[own.peer]
    with Session(config={transport: 2}) as session:
        if own.rank == 0:
            address = told.recv().decode()
            yield lambda: session.connect(address)
        else:
            with session.listen("127.0.0.1") as socket:
                told.send(socket.address.encode())
                yield lambda: socket.accept(_ENOUGH)
        own.barrier()


# ---- opening ------------------------------------------------------------------------------------


MANY = 900


def opened(transport: str) -> str:
    return f"{MANY} connections, {transport.lower()}"


def descriptors(transport: str) -> str:
    return f"descriptors of each, {transport.lower()}"


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def opening(own: Own, seconds: float, transport: str) -> Figures | None:
    """The seconds in which connections to one process open, all at once, and the descriptors of
    each."""
    with _toward(own, transport) as make:
        before = _descriptors()
        connections = [make() for _ in range(MANY)]
        if own.rank == 1:
            return None
        start = time.perf_counter()
        for request in [connection.iopen() for connection in connections]:
            request.wait(_ENOUGH)
        taken = time.perf_counter() - start
        assert {connection.transport.upper() for connection in connections} == {transport}
        each = (_descriptors() - before) / len(connections)
        return {opened(transport): taken, descriptors(transport): each}


# ---- their memory -------------------------------------------------------------------------------

LAZY, IDLE, USED = "lazy", "idle", "used once with 8 B and 20 kB"
LATER = "used once with 100 kB, a second later"


def of_each(number: int, stage: str) -> str:
    return f"each of {number} connections, {stage}"


def memory(own: Own, seconds: float, count: str) -> Figures:
    """The KiB of each of `count` connections over shm, in this process."""
    number, first = int(count), own.rank == 0
    figures: Figures = {}

    def note(stage: str) -> None:
        figures[of_each(number, stage)] = (resident() - before) / number / 1024
        own.barrier()

    with _toward(own, "SHM") as make:
        before = resident()
        connections = [make() for _ in range(number)] if first else []
        if first:
            figures[of_each(number, LAZY)] = (resident() - before) / number / 1024
        beside = make()
        _swap([beside], 8, first)
        before = resident()
        connections = _opened(connections) if first else [make() for _ in range(number)]
        note(IDLE)
        for size in (8, 20_000):
            _swap(connections, size, first)
        note(USED)
        _swap(connections, 100_000, first)
        _wait_a_second(beside)
        note(LATER)
    return figures


def _opened(connections: list[Connection]) -> list[Connection]:
    for connection in connections:
        connection.open()
    assert {connection.transport for connection in connections} == {"shm"}
    return connections


def _swap(connections: list[Connection], size: int, first: bool) -> None:
    """Send and receive one message over each connection; one side of each does so first."""
    for connection in connections:
        if first:
            connection.send(bytes(size))
        connection.recv()
        if not first:
            connection.send(bytes(size))


def _wait_a_second(connection: Connection) -> None:
    """Wait for a message that does not come, as a program does that has nothing to do."""
    request = connection.irecv(tag=_NEVER)
    with contextlib.suppress(TimeoutError):
        request.wait(1.0)
    request.cancel()


# ---- a message beside them ----------------------------------------------------------------------

_others: list[Connection] = []


def beside(comm: Communicator, connection: Connection, job: Job) -> Calls:
    """Calls of a connection while `job.window` others are open between the same sessions."""
    from pscompy.cli.perf_pair import calls

    _raise_the_limit_of_descriptors()
    with comm.session.listen("127.0.0.1") as socket:
        if comm.rank == 1:
            connection.send(socket.address.encode())
        address = connection.recv().decode() if comm.rank == 0 else ""
        while len(_others) < job.window:
            if comm.rank == 0:
                _others.append(comm.session.connect(address))
                _others[-1].open()
            else:
                _others.append(socket.accept(_ENOUGH))
        comm.barrier()
    return calls(connection, job)
