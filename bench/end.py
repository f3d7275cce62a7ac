"""One of the two processes of a pair, of pscompy or of a peer.

`python -m bench.end LIBRARY FOLDER [ROLE]`, started by the library's own launcher where it has
one; the folder and the lines in it are those of pscompy/cli/contender.py. The process is pinned
before it loads anything, in the same way whatever the library is.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.native import cores
from pscompy.cli import contender
from pscompy.cli.contender import End, Library
from pscompy.cli.measure import Calls, Job

Bytes = NDArray[np.uint8]

_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")  # where launchers tell it
_UNRELATED = 2  # a tag that no message has


@contextmanager
def pscompy(transport: str, folder: Path, role: int) -> Iterator[End]:
    """Ranks of a World, whose connection must have come to use this transport."""
    from pscompy import World
    from pscompy.cli.perf_pair import calls

    with World() as world:
        connection = world[1 - world.rank]
        connection.open()
        if connection.transport != transport:
            raise SystemExit(f"connected over {connection.transport} instead of {transport}")
        unrelated = connection.irecv(np.empty(8, np.uint8), _UNRELATED)
        yield world.rank, partial(calls, connection)
        unrelated.cancel()


@contextmanager
def sockets(folder: Path, role: int) -> Iterator[End]:
    """Plain sockets of the loopback that both sides poll."""
    with _socket_pair(folder, role) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        yield role, partial(_socket_calls, sock)


def _socket_pair(folder: Path, role: int) -> socket.socket:
    address = str(folder / "port")
    with socket.socket(socket.AF_UNIX) as door:  # tells the port
        if role == 0:
            with socket.create_server(("127.0.0.1", 0)) as server:
                door.bind(address)
                door.listen()
                with door.accept()[0] as caller:
                    caller.send(str(server.getsockname()[1]).encode())
                return server.accept()[0]
        while True:
            try:
                door.connect(address)
            except (FileNotFoundError, ConnectionRefusedError):
                continue
            return socket.create_connection(("127.0.0.1", int(door.recv(16))))


def _socket_calls(sock: socket.socket, job: Job) -> Calls:
    outgoing, incoming = np.ones((2, job.size), np.uint8)
    send, recv = partial(_send, sock, outgoing), partial(_recv, sock, incoming)
    short = np.ones(1, np.uint8)
    return Calls(
        outgoing=outgoing,
        incoming=incoming,
        send=send,
        recv=recv,
        isend=send,
        irecv=recv,
        wait_all=lambda requests: None,
        acknowledge=partial(_send, sock, short),
        acknowledged=partial(_recv, sock, short),
    )


def _send(sock: socket.socket, array: Bytes) -> None:
    data = array.data
    while data:
        try:
            data = data[sock.send(data) :]
        except BlockingIOError:
            continue


def _recv(sock: socket.socket, array: Bytes) -> None:
    room = array.data
    while room:
        try:
            room = room[sock.recv_into(room) :]
        except BlockingIOError:
            continue


LIBRARIES: dict[str, Library] = {
    "pscompy-shm": partial(pscompy, "shm"),
    "pscompy-tcp": partial(pscompy, "tcp"),
    "mpi4py": contender.mpi4py,
    "sockets": sockets,
}


def main(name: str, folder: str, role: str = "") -> None:
    number = int(role or next(os.environ[name] for name in _RANKS if name in os.environ))
    os.sched_setaffinity(0, {cores()[number]})
    contender.serve(LIBRARIES[name], Path(folder), number)


if __name__ == "__main__":
    main(*sys.argv[1:])
