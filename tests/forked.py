"""Far processes of tests, forked from a server that has imported pscompy: they start in a tenth of
the processor time that an interpreter takes, and nothing of the process of the tests is in them.

The server is started once per process of the tests, by `python -m tests.forked` with a socket as
its standard input, and ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pscompy.discovery import registry
from pscompy.testing import process

ROOT = Path(__file__).parents[1]
USUAL = dict(os.environ)  # the variables of the server, before any test
# Prefixes of variables that act when they are used.
LATE = ("PSP_", "PSCOMPY_", "PYTEST_", "PYTHONPATH", "RES_OPTIONS", "OPENBLAS_")


def begun(environ: Mapping[str, str]) -> Any:
    """A far process with these variables. It is started, not forked, if one of them is unusual that
    may act when a process starts, as LD_PRELOAD does."""
    unusual = {name for name, _ in environ.items() ^ USUAL.items() if not name.startswith(LATE)}
    return process.started(dict(environ)) if unusual else Forked(environ)


class Server:
    """The server, as the process of the tests sees it."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        environ = {k: v for k, v in USUAL.items() if not k.startswith("PSP_")}
        environ["PYTHONPATH"] = path
        command = [sys.executable, "-m", "tests.forked"]
        with its:
            self._process = subprocess.Popen(command, stdin=its, env=environ)
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def ask(self, request: object, descriptors: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            return int(self._socket.recv(100))


server = cache(Server)


class Forked:
    """A process that the server forks, with the part of `subprocess.Popen` that `Far` uses."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        its_input, mine = os.pipe()
        theirs, its_output = os.pipe()
        self.stdin, self.stdout = os.fdopen(mine, "wb"), os.fdopen(theirs, "rb")
        request = {"environ": dict(environ), "folder": str(Path.cwd())}
        self.pid = server().ask(request, [its_input, its_output, 2])
        os.close(its_input)
        os.close(its_output)
        self._pidfd = os.pidfd_open(self.pid)
        self._lock = threading.Lock()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait as `subprocess.Popen` does; several threads may do so at once."""
        with self._lock:
            if self.returncode is not None:
                return self.returncode
            watched = os.dup(self._pidfd)
        try:
            if not select.select([watched], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        finally:
            os.close(watched)
        with self._lock:
            if self.returncode is None:
                self.returncode = server().ask({"wait": self.pid}, [])
                os.close(self._pidfd)
            return self.returncode

    def kill(self) -> None:
        with self._lock:
            if self.returncode is None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


# ---- in the server ----------------------------------------------------------


def serve(requests: socket.socket) -> None:
    """Answer requests; returns at their end, and in each process that was forked."""
    while True:
        text, descriptors, *_ = socket.recv_fds(requests, 1 << 20, 3)
        if not text:
            return
        request = json.loads(text)
        if not descriptors:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        elif not (answer := os.fork()):
            requests.close()
            become(request["environ"], request["folder"], descriptors)
            process.main()
            return
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(str(answer).encode())


def become(environ: dict[str, str], folder: str, descriptors: list[int]) -> None:
    """Make this process one as if it had been started so."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ |= environ
    os.chdir(folder)
    known = [folder, *environ["PYTHONPATH"].split(os.pathsep)]
    sys.path[:] = [*known, *(it for it in sys.path if it not in known)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the process of the tests
    registry.load({}, {})  # imports the plug-ins
    gc.collect()
    gc.freeze()
    with open(os.devnull, "rb") as nothing, socket.socket(fileno=os.dup(0)) as requests:
        os.dup2(nothing.fileno(), 0)
        nothing.close()
        serve(requests)


if __name__ == "__main__":
    main()
