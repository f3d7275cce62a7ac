"""A transport of pscompy in Python: sequenced packets between processes of one node.

Each frame is one packet of a Unix socket. The address is a random name in Linux's abstract
namespace, so there is no file that could be left behind.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from typing import Any

from pscompy.plugin import Link, PythonTransport, Transport, Var, hookimpl, size

VARIABLES = (Var("BACKLOG", "64", size(1, 4096), "Callers that the kernel keeps waiting."),)


class Packets(PythonTransport):
    """One listening socket, and a connected socket per link."""

    latency = 60e-6
    bandwidth = 0.8e9
    max_frame = 1 << 16
    node_only = True

    def open(self, settings: Mapping[str, Any]) -> bytes:
        address = b"\0pscompy-packets-" + secrets.token_hex(8).encode()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        self._listener.bind(address)
        self._listener.listen(settings["BACKLOG"])
        self.watch(self._listener, self._accept)
        return address

    def connect(self, link: Link, address: bytes) -> None:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._adopt(link, peer)
        peer.connect(address)

    def send(self, link: Link, data: memoryview) -> int:
        return int(link.state.send(data, socket.MSG_NOSIGNAL))

    def disconnect(self, link: Link) -> None:
        link.state.close()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        peer, _ = self._listener.accept()
        self._adopt(self.accepted(), peer)

    def _adopt(self, link: Link, peer: socket.socket) -> None:
        peer.setblocking(False)
        link.state = peer
        self.watch(peer, lambda: self.received(link, peer.recv(self.max_frame)), link)


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("packets", 5, VARIABLES, python=Packets)
