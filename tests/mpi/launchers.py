"""Starts ranks of one program on the library, and on MPICH, with the same Python packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from bench import peers
from bench.native import NotMeasured
from tests.mpi.conftest import ROOT


class Ended(NamedTuple):
    code: int
    output: str
    errors: str


class Launcher(NamedTuple):
    """A command that starts ranks of Python, without Python's arguments."""

    command: tuple[str, ...]
    environ: dict[str, str]

    def run(
        self, arguments: list[str], folder: Path, seconds: float, given: str = ""
    ) -> Ended | None:
        """Run in this folder, with `given` as standard input. None after so many seconds: the
        launcher is asked to end, which ends its ranks."""
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [*self.command, *arguments],
            cwd=folder,
            env=self.environ,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
        ) as process:
            try:
                output, errors = process.communicate(given, timeout=seconds)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.communicate()
                return None
        return Ended(process.returncode, output, errors)

    def searching(self, *folders: Path) -> Launcher:
        """The same, with modules of these folders."""
        paths = [*map(str, folders), self.environ.get("PYTHONPATH", "")]
        return self._replace(environ=self.environ | {"PYTHONPATH": os.pathsep.join(paths)})


def ours(ranks: int, tcp: bool, library: Path | None = None, python: str = "") -> Launcher:
    """`pscompy run --mpi` of this or another Python; or with this libmpi.so.12, for mpi4py."""
    command = [python or sys.executable, "-m", "pscompy", "run", "-n", str(ranks)]
    environ = os.environ | {"PSP_SHM": "0" if tcp else "1"}
    if library:
        environ["MPI4PY_LIBMPI"] = str(library)
    else:
        command.append("--mpi")
    return Launcher((*command,), environ).searching(ROOT, ROOT / "mpi")


def mpich(ranks: int, tcp: bool, python: str | None = None) -> Launcher | None:
    """MPICH's wheel, of the benchmarks or of this Python; None, with a line that says why, if it
    cannot be installed."""
    try:
        start = peers.mpi("mpich", ranks, "tcp" if tcp else None)
    except NotMeasured as error:
        print(f"without MPICH: {error}")
        return None
    command = (*start.command[:-1], python or start.command[-1])
    return Launcher(command, dict(start.environment))
