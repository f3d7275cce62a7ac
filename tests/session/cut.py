"""Losing rails of loopback addresses, for the tests of connections over several rails."""

from __future__ import annotations

import os
import socket

import pscompy
from pscompy.control import rejoining


def is_stream(fd: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            return sock.family == socket.AF_INET and sock.getpeername() is not None
    except OSError:
        return False


def shut_rail(here, address):
    """Shut the socket of the connection that has this address."""
    for fd in range(1024):
        if is_stream(fd):
            with socket.socket(fileno=os.dup(fd)) as sock:
                if sock.getsockname()[0] == address:
                    sock.shutdown(socket.SHUT_RDWR)


def pause_before_joining(here, seconds):
    """Let this process try so rarely to join lost rails again."""
    rejoining.PAUSE = rejoining.PAUSE_MAX = seconds


def lane_bytes(c: pscompy.Connection) -> list[int]:
    return [value for name, value in sorted(c.stats.items()) if name.startswith("lane")]
