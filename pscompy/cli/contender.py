"""Another library between two processes, which `pscompy perf --against` measures.

A `Contender` starts the processes and sends them jobs as lines of JSON, through the socket CONTROL
in a folder of theirs; they answer each with the seconds it took. Between jobs a process sleeps, so
that it does not disturb the measurement of other libraries. Rank 0 is the active process.
`python -m pscompy.cli.contender NAME FOLDER [ROLE]` is one of the processes.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

import numpy as np

from pscompy.cli.libraries import Library, Opening, Ranks, mpi4py, multiprocessing
from pscompy.cli.measure import HALVES, LATENCY, STREAM, Halves, Job
from pscompy.errors import PscomError, Unsupported

_CONTROL = "control"
_START_SECONDS = 60.0
_UNRELATED = 2  # a tag that no message has

_LIBRARIES: dict[str, Opening] = {"mpi4py": mpi4py, "pipe": multiprocessing}
NAMES = tuple(_LIBRARIES)

Commands = Callable[[Path], list[list[str]]]


class Contender:
    """Two processes that are connected by another library. A context manager.

    `commands(folder)` returns the commands that start the processes; they connect through files in
    the folder. `environment` is the environment of the processes; None stands for this process's
    own. `tests` are the tests that the library supports. Raises `PscomError` if the processes do
    not start.
    """

    def __init__(
        self,
        name: str,
        commands: Commands,
        environment: Mapping[str, str] | None = None,
        tests: tuple[str, ...] = tuple(HALVES),
    ) -> None:
        self.name = name
        self.tests = tests
        self._environment = environment
        self._folder = Path(tempfile.mkdtemp(prefix="pscompy-perf-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._controls: dict[int, TextIO] = {}
        try:
            self._start(commands(self._folder))
        except BaseException:
            self.close()
            raise

    def run(self, job: Job) -> float:
        """Run a job and return the seconds it took. Raises `PscomError` if a process has ended."""
        for control in self._controls.values():
            print(json.dumps(asdict(job)), file=control, flush=True)
        answers = {role: control.readline() for role, control in self._controls.items()}
        if not all(answers.values()):
            raise PscomError(f"a process of {self.name} has ended; its error is printed above")
        return float(answers[0])

    def close(self) -> None:
        """End the processes: they exit when their control socket is closed, or are killed."""
        for control in self._controls.values():
            control.close()
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, commands: list[list[str]]) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._folder / _CONTROL))
            listener.listen()
            listener.settimeout(0.2)
            self._processes = [
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=self._environment
                )
                for command in commands
            ]
            deadline = time.monotonic() + _START_SECONDS
            while len(self._controls) < 2:
                self._admit(listener, deadline)

    def _admit(self, listener: socket.socket, deadline: float) -> None:
        """Accept the control connection of one process, or return after the socket's timeout.

        Raises `PscomError` if a process has ended or the deadline has passed.
        """
        try:
            caller, _ = listener.accept()
        except TimeoutError:
            ended = any(process.poll() is not None for process in self._processes)
            if ended or time.monotonic() > deadline:
                raise PscomError(f"the processes of {self.name} do not start") from None
            return
        caller.settimeout(None)
        control = caller.makefile("rw")
        caller.close()
        self._controls[int(control.readline() or -1)] = control

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def installed(name: str) -> Contender:
    """Start the contender for the library `name`, one of NAMES.

    Raises `Unsupported` if the library or its launcher is not installed.
    """
    process = [sys.executable, "-m", "pscompy.cli.contender", name]
    if name == "pipe":  # a pipe blocks, so both sides cannot send large messages at once
        return Contender(
            name,
            lambda folder: [[*process, str(folder), role] for role in "01"],
            tests=(LATENCY, STREAM),
        )
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None or find_spec("mpi4py") is None:
        raise Unsupported("mpi4py and mpiexec are not both installed: pip install mpi4py mpich")
    start = [mpiexec, "-n", "2", *process]
    return Contender(name, lambda folder: [[*start, str(folder)]])


# ---- one of the processes ----


def serve(library: Library, folder: Path, halves: Halves = HALVES) -> None:
    """Connect to the control socket, send the rank of this process, and run the jobs."""
    with socket.socket(socket.AF_UNIX) as control, _unrelated(library):
        control.connect(str(folder / _CONTROL))
        with control.makefile("rw") as lines:
            print(library.rank, file=lines, flush=True)
            for line in lines:
                job = Job(**json.loads(line))
                half = halves[job.test][library.rank]
                print(half(job, library.calls(job)) or 0.0, file=lines, flush=True)


@contextmanager
def _unrelated(library: Library) -> Iterator[None]:
    """Among ranks a receive that no message matches is pending during the jobs, as in most
    programs."""
    if not isinstance(library, Ranks):
        yield
        return
    memory = library.buffer(np.empty(8, np.uint8))
    request = library.irecv(memory, library.peer, _UNRELATED)
    yield
    library.cancel(request)


def main(name: str, folder: str, role: str = "0") -> None:
    with _LIBRARIES[name](Path(folder), int(role)) as library:
        serve(library, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
