"""Jobs started as a user does: by the program `pscompy run` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pscompy
from tests.program import program
from tests.storm import python_path

ROOT = Path(pscompy.__file__).parents[1]
TIMEOUT = float(os.environ.get("PSCOMPY_TEST_SECONDS", "250"))


def launcher_with(constants: dict[str, float]) -> None:
    """`pscompy`, whose launcher has other constants."""
    from pscompy.cli.main import main
    from pscompy.launch import job

    vars(job).update(constants)
    sys.exit(main())


class Launcher:
    """Starts `pscompy run` with arguments; input and output are text."""

    command: tuple[str, ...] = (sys.executable, "-m", "pscompy", "run")
    before_program: tuple[str, ...] = ("--",)

    def having(self, **constants: float) -> Launcher:
        """Give the launcher's module `job` other constants; returns this launcher."""
        self.command = (sys.executable, "-c", program(launcher_with, constants), "run")
        return self

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a job, without the variables of a launcher that runs the tests;
        pscompy can be imported. PYTHONUNBUFFERED is removed, because mpiexec keeps a line whole
        only if it is one write."""
        foreign = ("PMI", "PSP_", "SLURM_", "PBS_", "PYTHONUNBUFFERED")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        return {**kept, "PYTHONPATH": python_path(ROOT)}

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

    def lines(self, n: int, *command: object, **env: str) -> list[str]:
        """Run `n` ranks, which must succeed and write nothing to stderr; returns the lines of their
        output, sorted."""
        done = self("-n", n, *command, env=env)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return sorted(done.stdout.splitlines())

    def python(self, program: Path) -> tuple[object, ...]:
        """The command of a program in Python, for any launcher."""
        return *self.before_program, sys.executable, program

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
