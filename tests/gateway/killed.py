"""A survivor whose peers are killed before, while and after their connection opens.

Usage: killed.py COUNT SEED COMMAND...; COMMAND runs a program where the peers are. Prints a line
of JSON per peer: how the two connected, when the peer was killed (seconds after the survivor
began to connect), how long the survivor took to notice, and the error that it got.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pscompy

HOW = ("connect", "lower", "higher")  # to a socket, or as rank 0 or rank 1 of a World
# Half of the peers are killed at a random time of this range, in seconds after the survivor begins
# to connect; the other half within COMING_UP seconds, while the connection opens.
EARLIEST, LATEST = -0.3, 0.7
COMING_UP = 0.08
GIVE_UP = 60.0  # seconds


class Rank(pscompy.Session):
    """One of two ranks of a World; the other rank's address is set later."""

    def __init__(self, rank: int, job: str) -> None:
        self.rank = rank
        name, other = f"{job}-{rank:04}", f"{job}-{1 - rank:04}"
        self._open(name, {}, rank=rank, job=job, find_peer=lambda there: self.other._record)
        record = self._new_record(rank=1 - rank, name=other)
        self.other = pscompy.Connection(self._plain, record)
        self.socket = self.listen()

    def meet(self, address: str) -> pscompy.Connection:
        self.other._record.address = address
        return self.other


def peer(how: str, address: str, job: str) -> None:
    """Connect to the survivor, send one message, and sleep until killed."""
    if how == "connect":
        socket = pscompy.Session().listen()
        print(socket.address, flush=True)
        connection = socket.accept()
    else:
        session = Rank(how == "lower", job)
        print(session.socket.address, flush=True)
        connection = session.meet(address)
    connection.isend(b"first")
    connection.recv()
    time.sleep(600)


def survive(how: str, moment: float, job: str, command: list[str]) -> dict[str, object]:
    session = pscompy.Session() if how == "connect" else Rank(how != "lower", job)
    own = "" if how == "connect" else session.socket.address
    arguments = [*command, sys.executable, str(Path(__file__)), how, own, job]
    with session, subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        address = other.stdout.readline().strip()
        begin = time.monotonic() + max(-moment, 0.0)
        connection = None
        if moment < 0:
            kill(other)
            time.sleep(max(begin - time.monotonic(), 0.0))
        connection = session.connect(address) if how == "connect" else session.meet(address)
        first = send(connection)
        if moment >= 0:
            time.sleep(moment)
            kill(other)
        killed = time.monotonic()
        told = end(connection, first, killed + GIVE_UP)
        return {
            "how": how,
            "moment": round(moment, 3),
            "seconds": round(time.monotonic() - max(killed, begin), 3),
            "told": told,
        }


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def send(connection: pscompy.Connection) -> pscompy.Request | pscompy.ConnectError:
    """The survivor's first message, or its error: a peer that has begun to connect before it was
    killed makes the survivor connect, too, and that may have failed already."""
    try:
        return connection.isend(b"first")
    except pscompy.ConnectError as error:
        return error


def end(
    connection: pscompy.Connection, first: pscompy.Request | pscompy.ConnectError, until: float
) -> str:
    """The error by which the survivor learns of the end of its peer."""
    try:
        if isinstance(first, pscompy.ConnectError):
            raise first
        first.wait(until - time.monotonic())
        while True:
            connection.recv(timeout=until - time.monotonic())
    except (pscompy.PeerLost, pscompy.ConnectError) as error:
        return f"{type(error).__name__}: {error}"
    except pscompy.Timeout:
        return f"nothing; {connection.state.name}"


def main() -> None:
    count, seed, *command = sys.argv[1:]
    chance = random.Random(int(seed))
    for number in range(int(count)):
        often = chance.random() < 0.5
        moment = chance.uniform(0, COMING_UP) if often else chance.uniform(EARLIEST, LATEST)
        line = survive(HOW[number % len(HOW)], moment, f"job{seed}x{number}", command)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    if sys.argv[1] in HOW:
        peer(*sys.argv[1:])
    else:
        main()
