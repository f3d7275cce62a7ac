"""One of the two processes that `bench.rails` times, each in a network namespace of its own.

    rails_end.py serve HOST
    rails_end.py call ADDRESS SECONDS SIZE ...

`call` prints, as JSON, the seconds of a message of each SIZE one way: half of a round trip, on
average. Every round trip is checked by its length, the first one of each size by its bytes too.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import pscompy

DATA, END = 0, 1  # tags
LONGEST = 1 << 20  # bytes that are compared at most, at both ends of a message
TIMEOUT = 300


def serve(host: str) -> None:
    with pscompy.Session() as session, session.listen(host) as socket:
        print(socket.address, flush=True)
        connection = socket.accept(timeout=TIMEOUT)
        buffer = np.empty(int(connection.recv(timeout=TIMEOUT)), "u1")
        while (status := connection.recv(buffer, timeout=TIMEOUT)).tag != END:
            connection.send(buffer[: status.nbytes], timeout=TIMEOUT)


def call(address: str, seconds: float, sizes: list[int]) -> None:
    with pscompy.Session() as session:
        connection = session.connect(address)
        connection.send(str(max(sizes)).encode(), timeout=TIMEOUT)
        out = np.arange(max(sizes), dtype="u1")
        back = np.zeros(max(sizes), "u1")
        taken = {size: _one_way(connection, out[:size], back[:size], seconds) for size in sizes}
        connection.send(b"", tag=END, timeout=TIMEOUT)
        print(json.dumps({"lanes": connection.explain().lanes, "seconds": taken}), flush=True)


def _one_way(
    connection: pscompy.Connection, out: np.ndarray, back: np.ndarray, seconds: float
) -> float:
    _turn(connection, out, back)
    for part in (slice(LONGEST), slice(-LONGEST, None)):
        assert np.array_equal(out[part], back[part]), "wrong bytes came back"
    begun, turns = time.perf_counter(), 0
    while turns == 0 or time.perf_counter() - begun < seconds:
        _turn(connection, out, back)
        turns += 1
    return (time.perf_counter() - begun) / turns / 2


def _turn(connection: pscompy.Connection, out: np.ndarray, back: np.ndarray) -> None:
    connection.send(out, timeout=TIMEOUT)
    assert connection.recv(back, timeout=TIMEOUT).nbytes == len(back)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        call(sys.argv[2], float(sys.argv[3]), [int(size) for size in sys.argv[4:]])
