"""Child processes that run Python code and talk to the test over pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pscompy

ROOT = Path(pscompy.__file__).parent.parent


class Child:
    """`python -c code args...` as a context manager that leaves no process behind."""

    def __init__(self, code: str, *args: str, **env: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """Read the next line of the child's output."""
        assert self._process.stdout is not None
        line, last = b"", b""
        while last != b"\n":  # read no further, because communicate() does not see buffered bytes
            last = os.read(self._process.stdout.fileno(), 1)
            assert last, self.end()
            line += last
        return line[:-1].decode()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self, timeout: float = 60) -> tuple[int, str, str]:
        """Wait for the child's exit; returns its exit code, the rest of its output, and its
        errors."""
        out, err = self._process.communicate(timeout=timeout)
        return self._process.returncode, out, err

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self._process.wait()
