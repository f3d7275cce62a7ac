"""The far process of a test: it calls functions of `pscompy.testing.remote_side` when told to.

Run as `python -m pscompy.testing.process`, it reads calls from its standard input and writes what
they return or raise; whatever they print goes to standard error.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pscompy
from pscompy.api.session import Session
from pscompy.testing.remote_side import Here

BOUND = 60.0  # seconds: what takes longer hangs
_LENGTH = struct.Struct("<Q")


class FarError(Exception):
    """An exception of the far process that could not be brought here as it was."""


class Far:
    """A process of its own: `far(function, ...)` calls `function(here, ...)` there."""

    def __init__(self) -> None:
        self.session: Session | None = None  # of this process
        self.busy = False  # a call was begun whose result nobody has asked for
        packages = str(Path(pscompy.get_include()))
        paths = os.pathsep.join([packages, *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pscompy.testing.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What it returns, or its exception."""
        self.begin(function, *args, **kwargs)
        return self.result()

    def begin(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Have it called while this process does something else; `result` follows."""
        assert self._process.stdin is not None
        assert not self.busy, "the far process does one thing at a time"
        self.busy = True
        _write(self._process.stdin, (function, args, kwargs))

    def result(self) -> Any:
        """Of what was begun. Meanwhile `session` serves its peers, as in an event loop."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + BOUND
        if self.session is not None:
            serve(self.session, self._process.stdout, deadline)
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        returned, value = pickle.loads(self._read(length, deadline))
        self.busy = False
        if not returned:
            raise value
        return value

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """As `kill -9`."""
        self._process.kill()
        self._process.wait(BOUND)

    def wait(self) -> int:
        """Until it has ended by itself; its exit code, negative for a signal."""
        return self._process.wait(BOUND)

    def close(self) -> None:
        """It ends by itself, or is killed."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        try:
            self._process.wait(BOUND)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def _read(self, nbytes: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        fd, data = self._process.stdout.fileno(), b""
        while len(data) < nbytes:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise AssertionError("the far process does not answer: it hangs")
            piece = os.read(fd, nbytes - len(data))
            if not piece:
                raise EOFError(f"the far process has ended with {self._process.wait(BOUND)}")
            data += piece
        return data


def _write(stream: BinaryIO | Any, value: object) -> None:
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _answer(here: Here, call: bytes) -> tuple[bool, object]:
    function, args, kwargs = pickle.loads(call)
    try:
        return True, function(here, *args, **kwargs)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return False, FarError(f"{type(error).__name__}: {error}")
        return False, error


def serve(session: Session, until: BinaryIO | Any, deadline: float = math.inf) -> None:
    """Serve the peers, as any event loop does, until this can be read or the deadline."""
    while time.monotonic() < deadline:
        armed = session.arm()
        watched = [until, session.fileno()] if armed else [until]
        if until in select.select(watched, [], [], 1.0 if armed else 0)[0]:
            return
        session.progress()


def _read_exactly(stream: BinaryIO | Any, nbytes: int) -> bytes:
    """Fewer only at the end."""
    data = b""
    while len(data) < nbytes and (piece := stream.read(nbytes - len(data))):
        data += piece
    return data


def main() -> None:
    calls = os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    here = Here()
    while True:
        if here.session is not None:
            serve(here.session, calls)
        head = _read_exactly(calls, _LENGTH.size)
        if not head:
            return
        _write(answers, _answer(here, _read_exactly(calls, _LENGTH.unpack(head)[0])))


if __name__ == "__main__":
    main()
