"""The far process of a test: it calls functions that the test sends.

Run as `python -m pscompy.testing.process`, it reads calls from its standard input and writes their
results or exceptions to standard output; text that the functions print goes to standard error.
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
from typing import Any, BinaryIO, ClassVar

import pscompy
from pscompy.api.session import Session
from pscompy.testing.remote_side import Here

BOUND = 60.0  # seconds after which an operation counts as hanging
_LENGTH = struct.Struct("<Q")


class FarError(Exception):
    """Stands for an exception of the far process that cannot be pickled."""


def started(environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a far process with these variables."""
    command = [sys.executable, "-m", "pscompy.testing.process"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)


class Far:
    """The far process, which the constructor starts.

    `far(function, ...)` calls `function(here, ...)` there, with the `Here` of that process. The
    function is one that `dumps` can pickle. `environ` are variables of the process. `begun` is the
    function that starts the process.
    """

    dumps: ClassVar[Callable[[object], bytes]] = pickle.dumps
    begun: ClassVar[Callable[[dict[str, str]], subprocess.Popen[bytes]]] = started

    def __init__(self, **environ: str) -> None:
        # a session of this process, or None; `result` makes progress in it while it waits
        self.session: Session | None = None
        self.busy = False  # a call was begun and `result` was not called yet
        packages = str(Path(pscompy.get_include()))
        paths = os.pathsep.join([packages, *filter(None, sys.path)])
        self._process = Far.begun({**os.environ, "PYTHONPATH": paths, **environ})

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function in the far process; returns its result or raises its exception."""
        self.begin(function, *args, **kwargs)
        return self.result()

    def begin(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Begin to call a function in the far process; `result` must be called later."""
        assert self._process.stdin is not None
        assert not self.busy, "the far process does one thing at a time"
        self.busy = True
        _write(self._process.stdin, Far.dumps((function, args, kwargs)))

    def result(self, timeout: float = BOUND) -> Any:
        """Return the result of the call that was begun, or raise its exception; a text replaces
        either if it cannot be pickled. While this waits, `session` makes progress. Raises
        `AssertionError` after `timeout` seconds, and `EOFError` if the far process has ended."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout
        if self.session is not None:
            serve(self.session, self._process.stdout, deadline)
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        returned, value = pickle.loads(self._read(length, deadline))
        self.busy = False
        if not returned:
            raise value
        return value

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process by SIGKILL."""
        self._process.kill()
        self._process.wait(BOUND)

    def wait(self) -> int:
        """Wait until the process has ended by itself; returns its exit code, negative for a
        signal."""
        return self._process.wait(BOUND)

    def hang_up(self) -> None:
        """Close the process's input; the process then exits like a program that has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        """Make the process end by closing its pipes. If it has not ended after BOUND seconds, it is
        killed and `subprocess.TimeoutExpired` is raised."""
        assert self._process.stdout is not None
        self.hang_up()
        self._process.stdout.close()
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


def _write(stream: BinaryIO | Any, data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _answer(here: Here, call: bytes) -> bytes:
    answer: tuple[bool, object]
    try:
        function, args, kwargs = pickle.loads(call)
        answer = True, function(here, *args, **kwargs)
    except (Exception, KeyboardInterrupt) as error:
        answer = False, error
    returned, value = answer
    try:
        data = pickle.dumps(answer)
        if not returned:
            pickle.loads(data)  # some exceptions can be pickled, but not unpickled
    except Exception:
        text = repr(value) if returned else FarError(f"{type(value).__name__}: {value}")
        return pickle.dumps((returned, text))
    return data


def serve(session: Session, until: BinaryIO | Any, deadline: float = math.inf) -> None:
    """Make progress as an event loop does, until `until` is readable or the monotonic time
    `deadline` has passed."""
    while time.monotonic() < deadline:
        armed = session.arm()
        watched = [until, session.fileno()] if armed else [until]
        if until in select.select(watched, [], [], 1.0 if armed else 0)[0]:
            return
        session.progress()


def _read_exactly(stream: BinaryIO | Any, nbytes: int) -> bytes:
    """Read `nbytes` bytes; fewer only at the end of the stream."""
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
        if here.session is not None and here.served:
            serve(here.session, calls)
        head = _read_exactly(calls, _LENGTH.size)
        if not head:
            return
        _write(answers, _answer(here, _read_exactly(calls, _LENGTH.unpack(head)[0])))


if __name__ == "__main__":
    main()
