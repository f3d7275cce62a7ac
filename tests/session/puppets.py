"""Puppet, the test's side of `puppet.py`, and helpers that the tests of whole sessions share."""

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
BOUND = 60.0  # seconds; a step that takes longer is taken to hang
ONLY = {"shm": {"TCP": 0}, "tcp": {"SHM": 0}}  # configurations that leave one transport enabled

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
    """A process whose namespace has `session`, and `c` once it is connected."""

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
        """Run `source` in the puppet; return its value or raise its exception."""
        self.begin(source, **names)
        return self.result(timeout)

    def begin(self, source: str, **names: object) -> None:
        assert self.process.stdin is not None
        message = pickle.dumps((textwrap.dedent(source), names))
        self.process.stdin.write(HEAD.pack(len(message)) + message)
        self.process.stdin.flush()

    def result(self, timeout: float = BOUND) -> Any:
        """The value or exception of the source that `begin` has sent."""
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
        """Send SIGKILL and wait until the process has ended."""
        self.process.kill()
        self.process.wait(BOUND)

    def finish(self, timeout: float = BOUND) -> int:
        """Let the puppet exit like a program at the end of its input; returns the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout)

    def sleeps(self) -> bool:
        """True if the puppet's main thread is blocked in the kernel."""
        return asleep(self.pid, self.pid)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident(self) -> int:
        """Resident memory of the puppet, in bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """Kill the puppet even if it is stopped, and close its pipes."""
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
    """A session of this process and one connection from it to a puppet."""

    session: pscompy.Session
    sock: pscompy.Socket
    c: pscompy.Connection
    peer: Puppet


def quiet_port() -> int:
    """A port below the ephemeral range, so that the kernel gives it to no other socket
    meanwhile."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def own_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) - 1  # listdir itself has one descriptor open


def check_echo(link: Link) -> None:
    """Check that link.c and its puppet still exchange messages in both directions."""
    link.peer.begin("c.send(b'<' + c.recv() + b'>')")
    link.c.send(b"still there")
    assert link.c.recv(timeout=BOUND) == b"<still there>"
    link.peer.result()
