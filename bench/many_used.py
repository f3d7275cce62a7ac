"""Memory of connections to one session of another process over shm: FOLDER COUNT.

It starts itself for the other process, with the word `accept` behind.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.matching import resident
from pscompy import Connection, Session

LAZY, IDLE, USED = "lazy", "idle", "used once with 8 B and 20 kB"
LATER = "used once with 100 kB, a second later"
_CONFIG = {"SHM": 2}
_ENOUGH = 60.0  # seconds
_NEVER = 1  # a tag that no message has


def _swap(connections: list[Connection], size: int, *, first: bool) -> None:
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


def _measure(
    open_all: Callable[[], list[Connection]], beside: Connection, count: int, *, first: bool
) -> dict[str, float]:
    """The KiB of each of `count` connections in the process where they need more. `beside` is a
    connection that is open before."""
    figures: dict[str, float] = {}

    def note(stage: str) -> None:
        own = (resident() - before) / count / 1024
        beside.send(repr(own).encode())
        figures[stage] = max(own, float(beside.recv().decode()))

    _swap([beside], 8, first=first)
    before = resident()
    connections = open_all()
    note(IDLE)
    for size in (8, 20_000):
        _swap(connections, size, first=first)
    note(USED)
    _swap(connections, 100_000, first=first)
    _wait_a_second(beside)
    note(LATER)
    return figures


def _open(address: str, count: int) -> dict[str, float]:
    with Session(config=_CONFIG) as session:
        before = resident()
        connections = [session.connect(address) for _ in range(count)]
        lazy = (resident() - before) / count / 1024

        def open_all() -> list[Connection]:
            for connection in connections:
                connection.open()
            assert {connection.transport for connection in connections} == {"shm"}
            return connections

        beside = session.connect(address)
        return {LAZY: lazy, **_measure(open_all, beside, count, first=True)}


def _accept(count: int) -> None:
    with Session(config=_CONFIG) as session, session.listen("127.0.0.1") as socket:
        print(socket.address, flush=True)
        beside = socket.accept(_ENOUGH)
        _measure(lambda: [socket.accept(_ENOUGH) for _ in range(count)], beside, count, first=False)
        sys.stdin.read()


def main(folder: str, count: str, accept: str = "") -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if accept:
        _accept(int(count))
        return
    command = [sys.executable, *sys.argv, "accept"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        figures = _open(other.stdout.readline().strip(), int(count))
        assert other.stdin is not None
        other.stdin.close()
    (Path(folder) / "0").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
