"""A process that sends the time to one that sleeps meanwhile: FOLDER LIBRARY SECONDS. The receiver
writes the figures; both read the same clock."""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.native import cores

PAUSES = (1, 3, 10, 30)  # milliseconds
PAUSE = 3
SLOWEST = f"after {PAUSE} ms: 95 % take at most"
_LEAST = 20  # messages after each pause

# A flag, true if this process sends, and the operations with the other one.
End = tuple[bool, Callable[[Any], Any], Callable[[Any], Any]]


def after(pause: int) -> str:
    """The name of a cell."""
    return f"after {pause} ms: median"


@contextmanager
def _pscompy() -> Iterator[End]:
    from pscompy import World

    with World() as world:
        peer = world[1 - world.rank]
        yield world.rank == 0, lambda it: peer.send(it, 0), peer.recv


@contextmanager
def _socket() -> Iterator[End]:
    """Both ends block."""
    own, other = socket.socketpair()
    child = os.fork()
    sock = own if child else other
    yield not child, sock.sendall, sock.recv_into
    if child:
        os.waitpid(child, 0)


def _ways(end: End, pause: int, count: int) -> list[float]:
    """The microseconds from the start of each send to the end of its receive, at the receiver. It
    answers, so that it sleeps again before the next message."""
    sends, send, recv = end
    ball = np.zeros(1)
    ways = []
    for _ in range(count):
        if sends:
            time.sleep(pause / 1e3)
            ball[0] = time.perf_counter()
            send(ball)
            recv(ball)
        else:
            recv(ball)
            ways.append((time.perf_counter() - ball[0]) * 1e6)
            send(ball)
    return ways


def main(folder: str, library: str, seconds: str) -> None:
    with {"pscompy": _pscompy, "socket": _socket}[library]() as end:
        os.sched_setaffinity(0, {cores()[end[0]]})
        figures = {}
        for pause in PAUSES:
            ways = _ways(end, pause, max(_LEAST, int(float(seconds) * 1e3 / pause)))
            if not end[0]:
                figures[after(pause)] = statistics.median(ways)
                if pause == PAUSE:
                    figures[SLOWEST] = statistics.quantiles(ways, n=20)[-1]
        if not end[0]:
            (Path(folder) / "figures").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
