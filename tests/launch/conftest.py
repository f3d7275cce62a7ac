"""Runs jobs as a user does: the program `pscompy run` in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pscompy

ROOT = Path(pscompy.__file__).parents[1]
TIMEOUT = 250


class Launcher:
    """Starts `pscompy run` with arguments; input and output are text."""

    command: tuple[str, ...] = (sys.executable, "-m", "pscompy", "run")
    before_program: tuple[str, ...] = ("--",)

    def patient(self) -> Launcher:
        """Give ranks 100 s to clean up, enough for a slow machine; returns this launcher."""
        code = (
            "import sys; from pscompy.launch import job; job.GRACE = 100.0\n"
            "from pscompy.cli.main import main; sys.exit(main())"
        )
        self.command = (sys.executable, "-c", code, "run")
        return self

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a job, without the variables of a launcher that runs the tests;
        pscompy can be imported. PYTHONUNBUFFERED is removed, because mpiexec keeps a line whole
        only if it is one write."""
        foreign = ("PMI", "PSP_", "SLURM_", "PYTHONUNBUFFERED")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        return {**kept, "PYTHONPATH": str(ROOT)}

    def start(
        self, *arguments: object, env: dict[str, str] | None = None, **kwargs: object
    ) -> subprocess.Popen[str]:
        """Start a job and return the running process; it is killed after the test."""
        environ = {**self.environ, **(env or {})}
        process = subprocess.Popen(
            [*self.command, *map(str, arguments)],
            text=True,
            stdin=kwargs.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            # A shell that runs the tests in the background ignores SIGINT.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            **kwargs,
        )
        self._started.append(process)
        return process

    def __call__(
        self,
        *arguments: object,
        input: str | None = None,
        env: dict[str, str] | None = None,
        **kwargs: object,
    ) -> subprocess.CompletedProcess[str]:
        """Run a job to its end."""
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        process = self.start(*arguments, env=env, stdin=stdin, **kwargs)
        out, err = process.communicate(input, timeout=TIMEOUT)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def run() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture
def mpiexec(run: Launcher) -> Launcher:
    """A launcher that uses MPICH's mpiexec."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        pytest.skip("no mpiexec: pip install mpich")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if "HYDRA" not in version.stdout.upper():
        pytest.skip(f"{found} is not MPICH's")
    run.command, run.before_program = (found,), ()
    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Returns a function that writes a Python program and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write
