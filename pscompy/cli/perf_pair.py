"""The two processes of `pscompy perf` that are connected by pscompy itself.

The active side sends a command before every job, as JSON with the tag COMMAND; the passive side
serves commands until it receives END. `python -m pscompy.cli.perf_pair CONFIG` is the passive side
that `pscompy perf` starts by itself; its first line of output is its address.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pscompy import Connection, ProtocolError, PscomError, Session, wait_all
from pscompy.cli.measure import HALVES, Calls, Job

DATA, COMMAND = range(2)  # tags of messages
VALIDATE, END = "validate", "end"
_ACCEPT_SECONDS = 60.0
_IN_FLIGHT = 8
_IN_FLIGHT_BYTES = 64 << 20
_NUMBER_MAX = 1 << 60  # above any size and count that make sense
WINDOW_MAX = 1 << 20  # maximum number of messages in flight, each of which takes memory

Bytes = NDArray[np.uint8]


class OwnPair:
    """The active side of a connection of pscompy; a `Pair` of sampling.py."""

    name = "pscompy"
    tests = tuple(HALVES)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def transport(self) -> str:
        return self._connection.transport

    def run(self, job: Job) -> float:
        """Run a job and return the seconds it took. Raises `PscomError`."""
        self._command(**asdict(job))
        half, _ = HALVES[job.test]
        return half(job, calls(self._connection, job)) or 0.0

    def validate(self, size: int) -> int:
        """Exchange messages of `size` bytes and compare their contents; returns their number.

        Raises `PscomError` if contents differ.
        """
        self._command(test=VALIDATE, size=size)
        count = _send_checked(self._connection, size)
        found = self._connection.recv(tag=COMMAND).decode()
        found = _receive_checked(self._connection, size) or found
        if found:
            raise PscomError(f"wrong contents over {self.transport}: {found}")
        return 2 * count

    def close(self) -> None:
        """End the passive side."""
        self._command(test=END)

    def _command(self, **command: object) -> None:
        self._connection.send(json.dumps(command).encode(), COMMAND)


def serve(connection: Connection, seconds: float | None = None) -> None:
    """Serve as the passive side, until the active side sends END.

    Raises `Timeout` if the first command does not arrive within `seconds`, `ProtocolError` for any
    other message than a command, and for sizes beyond this process's memory.
    """
    while (job := _understood(connection.recv(tag=COMMAND, timeout=seconds))).test != END:
        seconds = None  # later commands wait for what the active side compares with
        try:
            _serve(connection, job)
        except MemoryError as error:
            raise ProtocolError(f"no memory for messages of {job.size} bytes") from error


def _understood(message: bytearray) -> Job:
    """Return the job that the active side asks for. Its test may also be VALIDATE or END."""
    try:
        job = Job(**{"size": 0, "count": 0, "window": 0, **json.loads(message)})
    except (RecursionError, TypeError, ValueError) as error:
        raise ProtocolError(f"this is no command: {bytes(message[:80])!r}") from error
    numbers = (job.size, job.count, job.window)
    bounded = all(type(it) is int and 0 <= it < _NUMBER_MAX for it in numbers)
    if not bounded or job.window > WINDOW_MAX or job.test not in (*HALVES, VALIDATE, END):
        raise ProtocolError(f"this command cannot be served: {bytes(message[:80])!r}")
    return job


def _serve(connection: Connection, job: Job) -> None:
    if job.test == VALIDATE:
        found = _receive_checked(connection, job.size)
        connection.send(found.encode(), COMMAND)
        _send_checked(connection, job.size)
    else:
        _, half = HALVES[job.test]
        half(job, calls(connection, job))


def calls(connection: Connection, job: Job) -> Calls:
    outgoing, incoming = np.ones((2, job.size), dtype=np.uint8)
    return Calls(
        outgoing=outgoing,
        incoming=incoming,
        send=partial(connection.send, outgoing),
        recv=partial(connection.recv, incoming, DATA),
        isend=partial(connection.isend, outgoing),
        irecv=partial(connection.irecv, incoming, DATA),
        wait_all=wait_all,
        acknowledge=partial(connection.send, b""),
        acknowledged=partial(connection.recv, None, DATA),
    )


# ---- contents ----


def _in_flight(size: int) -> int:
    return max(1, min(_IN_FLIGHT, _IN_FLIGHT_BYTES // max(size, 1)))


def _content(size: int, number: int) -> Bytes:
    """Return bytes that differ from those of every other size and number."""
    return np.random.default_rng([size, number]).integers(0, 256, size, dtype=np.uint8)


def _send_checked(connection: Connection, size: int) -> int:
    contents = [_content(size, number) for number in range(_in_flight(size))]
    wait_all([connection.isend(content) for content in contents])
    return len(contents)


def _receive_checked(connection: Connection, size: int) -> str:
    """Receive messages and return a text that describes the first wrong one, empty if all are
    right."""
    buffers = [np.zeros(size, dtype=np.uint8) for _ in range(_in_flight(size))]
    requests = [connection.irecv(buffer, DATA) for buffer in buffers]
    lengths = [status.nbytes for status in wait_all(requests)]
    for number, (buffer, length) in enumerate(zip(buffers, lengths, strict=True)):
        wrong = np.flatnonzero(buffer != _content(size, number))
        if length != size or len(wrong):
            first = wrong[0] if len(wrong) else length
            return f"message {number} of {size} bytes: {length} arrived, wrong from byte {first} on"
    return ""


def main(config: str) -> None:
    variables: dict[str, Any] = json.loads(config)
    with Session(config=variables) as session, session.listen("127.0.0.1") as sock:
        print(sock.address, flush=True)
        serve(sock.accept(_ACCEPT_SECONDS))


if __name__ == "__main__":
    main(*sys.argv[1:])
