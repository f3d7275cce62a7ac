"""The test's end of `puppet.py`, and what tests of whole sessions have in common."""

from __future__ import annotations

import os
import pickle
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pscompy
from tests.waiting import asleep

HEAD = struct.Struct("<Q")
BOUND = 60.0  # seconds: what takes longer hangs
ONLY = {"shm": {"TCP": 0}, "tcp": {"SHM": 0}}  # the configuration that leaves one transport

OPEN = """
import gc, os, signal, socket, sys, threading, time
import pscompy
session = pscompy.Session(config=config)
"""
CONNECT = """
c = session.connect(address)
c.send(b"hello")
"""


class Puppet:
    """A process with the namespace of a session: `session`, and `c` once it has connected."""

    def __init__(self, environ: dict[str, str]) -> None:
        script = Path(__file__).with_name("puppet.py")
        packages = str(Path(pscompy.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": packages, **environ},
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def __call__(self, source: str, timeout: float = BOUND, **names: object) -> Any:
        """Run this; its value, or its exception."""
        self.begin(source, **names)
        return self.result(timeout)

    def begin(self, source: str, **names: object) -> None:
        assert self.process.stdin is not None
        message = pickle.dumps((textwrap.dedent(source), names))
        self.process.stdin.write(HEAD.pack(len(message)) + message)
        self.process.stdin.flush()

    def result(self, timeout: float = BOUND) -> Any:
        """Of what was begun."""
        deadline = time.monotonic() + timeout
        (length,) = HEAD.unpack(self._read(HEAD.size, deadline))
        good, value = pickle.loads(self._read(length, deadline))
        if good:
            return value
        raise value if isinstance(value, BaseException) else RuntimeError(value)

    def connect(self, address: str) -> None:
        self(CONNECT, address=address)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """As `kill -9`, and wait until it is gone."""
        self.process.kill()
        self.process.wait(BOUND)

    def finish(self, timeout: float = BOUND) -> int:
        """Let it come to its end as a program does; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout)

    def sleeps(self) -> bool:
        """Whether its main thread waits in the kernel."""
        return asleep(self.pid, self.pid)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident(self) -> int:
        """Bytes of memory that it has."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """Whatever it does, at the end of the test it is gone."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(BOUND)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue

    def _read(self, nbytes: int, deadline: float) -> bytes:
        assert self.process.stdout is not None
        fd, data = self.process.stdout.fileno(), b""
        while len(data) < nbytes:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise AssertionError("the process does not answer: it hangs")
            piece = os.read(fd, nbytes - len(data))
            if not piece:
                raise EOFError(f"the process ended with {self.process.wait(BOUND)}")
            data += piece
        return data


@dataclass
class Link:
    """A session of this process, and one connection of it to a puppet."""

    session: pscompy.Session
    sock: pscompy.Socket
    c: pscompy.Connection
    peer: Puppet


def quiet_port() -> int:
    """A port that stays free between two uses: no system hands it out to whoever wants any."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def own_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) - 1  # the listing has one itself


def check_echo(link: Link) -> None:
    """The two still exchange messages, in both directions."""
    link.peer.begin("c.send(b'<' + c.recv() + b'>')")
    link.c.send(b"still there")
    assert link.c.recv(timeout=BOUND) == b"<still there>"
    link.peer.result()
