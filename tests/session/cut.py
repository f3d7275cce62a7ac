"""Losing rails of loopback addresses, for the tests of connections over several rails."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

import pscompy
from pscompy.control import repair


def is_stream(fd: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        with socket.socket(fileno=os.dup(fd)) as sock:
            return sock.family == socket.AF_INET and sock.getpeername() is not None
    except OSError:
        return False


def shut_rail(here, address):
    """Shut the sockets of the connection that have this address. Another thread may close one of
    them meanwhile."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if is_stream(fd):
                with socket.socket(fileno=os.dup(fd)) as sock:
                    if sock.getsockname()[0] == address:
                        sock.shutdown(socket.SHUT_RDWR)


def pause_before_joining(here, seconds):
    """Let this process try so rarely to join lost rails again."""
    repair.JOIN_PAUSE = repair.JOIN_PAUSE_MAX = seconds


def lane_bytes(c: pscompy.Connection) -> list[int]:
    return [value for name, value in sorted(c.stats.items()) if name.startswith("lane")]
