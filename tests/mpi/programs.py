"""Runs programs of mpi4py on the library that the tests have built."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

from tests.mpi.conftest import ROOT

SECONDS = 120  # after which a program hangs


class Outcome(NamedTuple):
    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        """The lines that the ranks have printed; their order is not defined."""
        return sorted(self.output.splitlines())


class Programs:
    """Programs that run on the library in this folder."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.library = folder / "libmpi.so.12"
        self._scratch = scratch

    def run(
        self, program: str, *options: str, ranks: int = 2, module: str = "", **environ: str
    ) -> Outcome:
        """Run the text of a program on so many ranks, with these options of `pscompy run`; by this
        module, which gets the program's path, if one is given."""
        path = self._scratch / "program.py"
        path.write_text(textwrap.dedent(program))
        by = ["-m", module] if module else []
        command = [sys.executable, "-m", "pscompy", "run", *options, "-n", str(ranks)]
        paths = [str(ROOT), str(ROOT / "mpi"), os.environ.get("PYTHONPATH", "")]
        places = {"MPI4PY_LIBMPI": str(self.library), "PYTHONPATH": os.pathsep.join(paths)}
        ended = subprocess.run(
            [*command, *by, str(path)],
            env=os.environ | places | environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        return Outcome(ended.returncode, ended.stdout, ended.stderr)
