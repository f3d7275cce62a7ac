"""Sockets as libraries: polled or blocking, TCP loopback or Unix sockets, and asyncio streams."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pscompy.cli.libraries import Library
from pscompy.cli.measure import Calls, Job

Bytes = NDArray[np.uint8]
_FAMILIES = {"unix": socket.AF_UNIX, "inet": socket.AF_INET}


@contextmanager
def sockets(family: str, polling: bool, folder: Path, role: int) -> Iterator[Library]:
    """A socket that both sides poll, or on which both block."""
    with _connected(family, folder, role) as sock:
        sock.setblocking(not polling)
        send, recv = (_send_polling, _recv_polling) if polling else (_send, _recv)
        yield Library(role, partial(_calls, partial(send, sock), partial(recv, sock)))


@contextmanager
def streams(folder: Path, role: int) -> Iterator[Library]:
    """asyncio streams over a Unix socket; calls are awaited."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    sock = _connected("unix", folder, role)
    reader, writer = loop.run_until_complete(asyncio.open_unix_connection(sock=sock))

    async def send(array: Bytes) -> None:
        writer.write(array.data)
        await writer.drain()

    async def recv(array: Bytes) -> None:
        await reader.readexactly(len(array))

    with contextlib.closing(writer):
        yield Library(role, partial(_calls, send, recv))


def _calls(send: Callable[[Bytes], Any], recv: Callable[[Bytes], Any], job: Job) -> Calls:
    outgoing, incoming = np.ones((2, job.size), np.uint8)
    short = np.ones(1, np.uint8)
    return Calls(
        outgoing=outgoing,
        incoming=incoming,
        send=partial(send, outgoing),
        recv=partial(recv, incoming),
        isend=partial(send, outgoing),
        irecv=partial(recv, incoming),
        wait_all=lambda requests: None,
        acknowledge=partial(send, short),
        acknowledged=partial(recv, short),
    )


# ---- messages -----------------------------------------------------------------------------------


def _send(sock: socket.socket, array: Bytes) -> None:
    sock.sendall(array.data)


def _recv(sock: socket.socket, array: Bytes) -> None:
    room = array.data
    while room:
        room = room[sock.recv_into(room) :]


def _send_polling(sock: socket.socket, array: Bytes) -> None:
    data = array.data
    while data:
        try:
            data = data[sock.send(data) :]
        except BlockingIOError:
            continue


def _recv_polling(sock: socket.socket, array: Bytes) -> None:
    room = array.data
    while room:
        try:
            room = room[sock.recv_into(room) :]
        except BlockingIOError:
            continue


# ---- connecting ---------------------------------------------------------------------------------


def _connected(family: str, folder: Path, role: int) -> socket.socket:
    """Connect both roles. Role 0 listens, and then writes its address into a file."""
    told = folder / "address"
    if role == 1:
        return _call(family, told)
    with socket.socket(_FAMILIES[family]) as door:
        door.bind(str(folder / "door") if family == "unix" else ("127.0.0.1", 0))
        door.listen()
        name = door.getsockname()
        draft = folder / "address.draft"
        draft.write_text(name if family == "unix" else str(name[1]))
        draft.rename(told)
        return _prompt(door.accept()[0])


def _call(family: str, told: Path) -> socket.socket:
    while not told.exists():
        time.sleep(0.01)
    sock = socket.socket(_FAMILIES[family])
    address = told.read_text()
    sock.connect(address if family == "unix" else ("127.0.0.1", int(address)))
    return _prompt(sock)


def _prompt(sock: socket.socket) -> socket.socket:
    """Set TCP_NODELAY, so that small messages are sent at once."""
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
