"""The tunnels of one process: each forwards a local socket over frames to another process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any

from pscompy_gateway.trunk import Frame
from pscompy_gateway.tunnel import Tunnel

AGAIN_TICKS = 3  # calls of Tunnels.again() between retransmissions of a tunnel's frames
CHUNK = 64 << 10  # bytes to read from a local socket at once
# maximum number of bytes of a tunnel that wait until they can be written to the local socket; a
# handshake is much shorter
INBOX_MAX = 1 << 20

Post = Callable[[int, list[Frame]], object]
"""post(node, frames) sends frames to a node."""

Accept = Callable[[socket.socket], object]


class _End:
    """This process's end of a tunnel: a local socket, and the Tunnel that carries its bytes."""

    def __init__(self, tunnel: Tunnel, node: int, sock: socket.socket) -> None:
        self.tunnel = tunnel
        self.node = node
        self.sock = sock
        self.inbox = bytearray()  # bytes that were received and not written to the socket yet
        self.ticks = 0
        self.reading = False


class Tunnels:
    """The tunnels of one process; all methods must be called in its event loop.

    `listeners` has a function for each local listener, by its number: the function is called with
    the socket of each tunnel that another process opens to that listener.
    """

    def __init__(self, me: Frame, listeners: dict[int, Accept], post: Post) -> None:
        """`me` holds the fields of a frame that name its sender."""
        self._me = me
        self._listeners = listeners
        self._post = post
        self._ends: dict[str, _End] = {}

    @property
    def nodes(self) -> dict[int, int]:
        """The nodes at the other ends of all tunnels: node -> its module."""
        return {end.node: end.tunnel.label["module"] for end in self._ends.values()}

    def dial(self, module: int, node: int, listener: int) -> socket.socket:
        """Open a tunnel to a listener of a node, by its number, and return the local socket."""
        near, far = _pair()
        name = os.urandom(12).hex()
        end = self._open(name, self._label(name, module, node, listener), far)
        self._post(node, end.tunnel.frames())
        return near

    def take(self, frame: Frame) -> None:
        """Handle a frame of a tunnel. Raises `KeyError`, `TypeError` or `ValueError` if the frame
        is malformed."""
        name, node = str(frame["name"]), int(frame["from_node"])
        end = self._ends.get(name) or self._on_caller(name, node, frame)
        if end is None or end.node != node:
            return
        data = end.tunnel.take(frame)
        if data or frame["data"] or frame.get("fin"):
            # there is at least one frame, which acknowledges `data`
            self._post(node, end.tunnel.frames())
        end.inbox += data
        if len(end.inbox) > INBOX_MAX:
            self._drop(name)
            raise ValueError(f"more than {INBOX_MAX} bytes that are not read here")
        self._to_local(name, end)

    def again(self, waiting: bool = False) -> None:
        """Send all unacknowledged data again. If `waiting`, data is sent only in tunnels that wait
        for an acknowledgement, and only at every AGAIN_TICKS-th call."""
        for end in list(self._ends.values()):
            end.ticks += 1
            if not waiting or (end.tunnel.waiting and end.ticks % AGAIN_TICKS == 0):
                self._post(end.node, end.tunnel.again())

    def drop(self, node: int | None = None) -> None:
        """Close the tunnels to a node, or all tunnels if `node` is None."""
        for name, end in list(self._ends.items()):
            if node is None or end.node == node:
                self._drop(name)

    # ---- inside ----

    def _label(self, name: str, module: int, node: int, listener: int | None) -> Frame:
        return {
            "kind": "tunnel",
            "name": name,
            "module": module,
            "node": node,
            "listener": listener,
            **self._me,
        }

    def _open(self, name: str, label: Frame, sock: socket.socket) -> _End:
        end = self._ends[name] = _End(Tunnel(label), label["node"], sock)
        self._watch(end, name)
        return end

    def _on_caller(self, name: str, node: int, frame: Frame) -> _End | None:
        """Open this process's end of a tunnel when its first frame arrives. If there is no such
        listener, or the tunnel has been closed here, reply with a frame that ends the tunnel, and
        return None."""
        label = self._label(name, int(frame["from_module"]), node, None)
        accept = self._listeners.get(frame.get("listener") or 0)
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
