"""The options of a precon's socket."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from typing import NamedTuple

from pscompy.config.config import Config

KEEPALIVE_MAX = 32767  # longest keep-alive time that the kernel accepts, in seconds


class PreconOptions(NamedTuple):
    """Options of a precon's socket: PSP_PRECON_TCP_* and PSP_GUARD_TIMEOUT."""

    sndbuf: int
    rcvbuf: int
    nodelay: bool
    stall_seconds: float
    stalled_max: int
    silence_seconds: float  # seconds of silence after which the peer of a precon is lost

    @classmethod
    def of(cls, config: Config) -> PreconOptions:
        return cls(
            sndbuf=config["PRECON_TCP_SO_SNDBUF"],
            rcvbuf=config["PRECON_TCP_SO_RCVBUF"],
            nodelay=config["PRECON_TCP_NODELAY"],
            stall_seconds=config["PRECON_TCP_RECONNECT_TIMEOUT"] / 1000,
            stalled_max=max(1, config["PRECON_TCP_CONNECT_STALLED_MAX"]),
            silence_seconds=config["GUARD_TIMEOUT"],
        )

    def apply(self, sock: socket.socket) -> None:
        """Make the socket non-blocking, and set these options."""
        sock.setblocking(False)
        for level, name, value in (
            (socket.SOL_SOCKET, socket.SO_SNDBUF, self.sndbuf),
            (socket.SOL_SOCKET, socket.SO_RCVBUF, self.rcvbuf),
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, int(self.nodelay)),
            *self._keepalive(),
        ):
            sock.setsockopt(level, name, value)

    def _keepalive(self) -> Iterator[tuple[int, int, int]]:
        """Yield options by which the kernel probes an idle peer after a third of `silence_seconds`,
        then every sixth. The first probe after the whole time ends the precon."""
        if not math.isfinite(self.silence_seconds):
            return
        idle, interval = (
            min(max(1, round(self.silence_seconds / part)), KEEPALIVE_MAX) for part in (3, 6)
        )
        yield socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
        yield socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle
        yield socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval
        milliseconds = min(max(1, round(self.silence_seconds * 1000)), 2**31 - 1)
        yield socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds
