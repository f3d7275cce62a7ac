"""One of the two processes with which `bench.gateways` measures a TCP relay.

    gateways_sockets.py {serve,call} HOST PORT SIZE COUNT TURNS

Sockets are blocking. The process with `call` prints the figures that rank 0 of gateways_pair.py
prints.
"""

from __future__ import annotations

import socket
import sys
import time

ROUNDS = 3
ROOM = 1 << 20


def take(sock: socket.socket, room: memoryview, count: int) -> None:
    while count:
        if (received := sock.recv_into(room[: min(count, ROOM)])) == 0:
            raise EOFError(f"the connection ended, {count} bytes are missing")
        count -= received


def latency(sock: socket.socket, room: memoryview, serve: bool, turns: int) -> float:
    """The time of 8 bytes one way, in us."""
    begun = time.perf_counter()
    for _ in range(turns):
        if serve:
            take(sock, room, 8)
        sock.sendall(b"12345678")
        if not serve:
            take(sock, room, 8)
    return (time.perf_counter() - begun) / turns / 2 * 1e6


def bandwidth(sock: socket.socket, room: memoryview, serve: bool, size: int, count: int) -> float:
    """The rate from the calling process to the serving one, in MB/s."""
    begun = time.perf_counter()
    if serve:
        take(sock, room, size * count)
        sock.sendall(b"12345678")
    else:
        data = bytes(size)
        for _ in range(count):
            sock.sendall(data)
        take(sock, room, 8)
    return size * count / (time.perf_counter() - begun) / 1e6


def connect(serve: bool, host: str, port: int) -> socket.socket:
    if not serve:
        return socket.create_connection((host, port))
    with socket.create_server((host, port)) as listening:
        print("listening", flush=True)
        return listening.accept()[0]


def main(role: str, host: str, *numbers: int) -> None:
    serve, room = role == "serve", memoryview(bytearray(ROOM))
    port, size, count, turns = numbers
    with connect(serve, host, port) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        best = min(latency(sock, room, serve, turns) for _ in range(ROUNDS))
        most = max(bandwidth(sock, room, serve, size, count) for _ in range(ROUNDS))
    if not serve:
        print(best, most)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
