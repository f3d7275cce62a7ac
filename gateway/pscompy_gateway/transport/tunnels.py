"""The tunnels of one process: sockets on this side, frames on the other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any

from pscompy_gateway.trunk import Frame
from pscompy_gateway.tunnel import Tunnel

AGAIN_TICKS = 3  # before frames are sent again
CHUNK = 64 << 10

Post = Callable[[int, list[Frame]], object]
"""Sends frames to a node."""

Accept = Callable[[socket.socket], object]


class _End:
    """This process's end of a tunnel: a socket, and the stream that it goes through."""

    def __init__(self, tunnel: Tunnel, node: int, sock: socket.socket) -> None:
        self.tunnel = tunnel
        self.node = node
        self.sock = sock
        self.inbox = bytearray()  # what the socket has not taken yet
        self.ticks = 0
        self.reading = False


class Tunnels:
    """All calls are made in the event loop. `doors` take callers in, by their numbers."""

    def __init__(self, me: Frame, doors: dict[int, Accept], post: Post) -> None:
        """`me` are the fields that tell who sends a frame."""
        self._me = me
        self._doors = doors
        self._post = post
        self._ends: dict[str, _End] = {}

    @property
    def nodes(self) -> dict[int, int]:
        """The other ends, with the modules that they are in."""
        return {end.node: end.tunnel.label["module"] for end in self._ends.values()}

    def dial(self, module: int, node: int, door: int) -> socket.socket:
        """The near end of a new tunnel."""
        near, far = _pair()
        name = os.urandom(12).hex()
        end = self._open(name, self._label(name, module, node, door), far)
        self._post(node, end.tunnel.frames())
        return near

    def take(self, frame: Frame) -> None:
        """A frame of a tunnel has come. KeyError, TypeError, ValueError: it is none."""
        name, node = str(frame["name"]), int(frame["from_node"])
        end = self._ends.get(name) or self._on_caller(name, node, frame)
        if end is None or end.node != node:
            return
        data = end.tunnel.take(frame)
        if data or frame["data"] or frame.get("fin"):
            self._post(node, end.tunnel.frames())  # it acknowledges
        end.inbox += data
        self._to_local(name, end)

    def again(self, waiting: bool = False) -> None:
        """Send what is not acknowledged again; `waiting`: only where that has taken a while."""
        for end in list(self._ends.values()):
            end.ticks += 1
            if not waiting or (end.tunnel.waiting and end.ticks % AGAIN_TICKS == 0):
                self._post(end.node, end.tunnel.again())

    def drop(self, node: int | None = None) -> None:
        """Break off what leads to a node, or all."""
        for name, end in list(self._ends.items()):
            if node is None or end.node == node:
                self._drop(name)

    # ---- inside ----

    def _label(self, name: str, module: int, node: int, door: int | None) -> Frame:
        return {
            "kind": "tunnel",
            "name": name,
            "module": module,
            "node": node,
            "door": door,
            **self._me,
        }

    def _open(self, name: str, label: Frame, sock: socket.socket) -> _End:
        end = self._ends[name] = _End(Tunnel(label), label["node"], sock)
        self._watch(end, name)
        return end

    def _on_caller(self, name: str, node: int, frame: Frame) -> _End | None:
        """The first frame of a tunnel; for what has no door here, its end."""
        label = self._label(name, int(frame["from_module"]), node, None)
        accept = self._doors.get(frame.get("door") or 0)
        if accept is not None and frame["offset"] == 0:
            near, far = _pair()
            end = self._open(name, label, far)
            accept(near)
            return end
        if not frame.get("fin_ack"):
            ack = int(frame["offset"]) + len(frame["data"]) // 2
            last = {"offset": 0, "data": "", "ack": ack, "fin": True, "fin_ack": True}
            self._post(node, [{**label, **last}])
        return None

    def _watch(self, end: _End, name: str) -> None:
        if not end.reading:
            end.reading = True
            asyncio.get_running_loop().add_reader(end.sock, self._on_local, name)

    def _unwatch(self, end: _End) -> None:
        if end.reading:
            end.reading = False
            asyncio.get_running_loop().remove_reader(end.sock)

    def _on_local(self, name: str) -> None:
        end = self._ends[name]
        try:
            data = end.sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        frames = end.tunnel.give(data)
        if not data or end.tunnel.full:
            self._unwatch(end)
        self._post(end.node, frames)
        self._close_if_over(name)

    def _to_local(self, name: str, end: _End) -> None:
        try:
            while end.inbox:
                del end.inbox[: end.sock.send(end.inbox)]
        except BlockingIOError:
            asyncio.get_running_loop().add_writer(end.sock, self._on_writable, name)
            return
        except OSError:
            end.inbox.clear()
        if end.tunnel.ended and not end.inbox:
            with contextlib.suppress(OSError):
                end.sock.shutdown(socket.SHUT_WR)
        if end.tunnel.open and not end.tunnel.full:
            self._watch(end, name)
        self._close_if_over(name)

    def _on_writable(self, name: str) -> None:
        end = self._ends[name]
        asyncio.get_running_loop().remove_writer(end.sock)
        self._to_local(name, end)

    def _close_if_over(self, name: str) -> None:
        end = self._ends.get(name)
        if end is not None and end.tunnel.over and not end.inbox:
            self._drop(name)

    def _drop(self, name: str) -> None:
        end = self._ends.pop(name)
        self._unwatch(end)
        asyncio.get_running_loop().remove_writer(end.sock)
        end.sock.close()


def _pair() -> tuple[socket.socket, socket.socket]:
    pair: Any = socket.socketpair()
    for sock in pair:
        sock.setblocking(False)
    return pair[0], pair[1]
