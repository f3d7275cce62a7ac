"""A transport in Python over byte streams, with frames and queues as small as allowed."""

from __future__ import annotations

import secrets
import socket

from pscompy.plugin import PythonTransport, Transport, hookimpl


class Streams(PythonTransport):
    max_frame = 2048
    queue = 2
    stream = True
    node_only = True

    def open(self, settings):
        address = b"\0pscompy-pystream-" + secrets.token_hex(8).encode()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.setblocking(False)
        self.listener.bind(address)
        self.listener.listen()
        self.watch(self.listener, self.accept)
        return address

    def accept(self):
        self.adopt(self.accepted(), self.listener.accept()[0])

    def adopt(self, link, peer):
        link.state = peer
        peer.setblocking(False)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
        self.watch(peer, lambda: self.received(link, peer.recv(777)), link)

    def connect(self, link, address):
        peer = socket.socket(socket.AF_UNIX)
        self.adopt(link, peer)
        peer.connect(address)

    def send(self, link, data):
        return link.state.send(data[:1000], socket.MSG_NOSIGNAL)

    def disconnect(self, link):
        link.state.close()

    def close(self):
        self.listener.close()


@hookimpl
def pscompy_transport():
    return Transport("pystream", 5, python=Streams)
