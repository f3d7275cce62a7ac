"""Starts programs as users of an installed pscompy do: by a launcher, or by Python alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.mpi.conftest import ROOT
from tests.mpi.programs import SECONDS, Outcome


class Starter:
    """Programs that find an installed pscompy_mpi in the folder `site`."""

    def __init__(self, site: Path, scratch: Path) -> None:
        self.library = site / "pscompy_mpi/libmpi.so.12"
        self._site, self._scratch = site, scratch

    def program(self, text: str) -> str:
        """The path of a program with this text."""
        path = self._scratch / "program.py"
        path.write_text(textwrap.dedent(text))
        return str(path)

    def command(self, *command: str | Path, **environ: str) -> Outcome:
        """Run a command; no MPI is chosen unless `environ` does."""
        kept = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "MPI4PY_LIBMPI")}
        paths = [str(ROOT), str(self._site), os.environ.get("PYTHONPATH", "")]
        ended = subprocess.run(
            command,
            env=kept | {"PYTHONPATH": os.pathsep.join(paths)} | environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Outcome(ended.returncode, ended.stdout, ended.stderr)

    def python(self, *arguments: str | Path, **environ: str) -> Outcome:
        return self.command(sys.executable, *arguments, **environ)

    def run(self, *arguments: str | Path, **environ: str) -> Outcome:
        """`pscompy run`, with these arguments."""
        return self.python("-m", "pscompy", "run", *arguments, **environ)
