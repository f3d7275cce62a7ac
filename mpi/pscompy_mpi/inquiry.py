"""The MPI that `import mpi4py` would get, and why: for `pscompy info`.

Another process imports it, with the same variables, and MPI is not initialised there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from pscompy_mpi import places
from pscompy_mpi.loading import first_line

SECONDS = 60  # for an import of mpi4py

# Prints what the MPI says of its version, and the files of MPI libraries in the process.
PROGRAM = """
import json, re
import mpi4py
mpi4py.rc(initialize=False, finalize=False)
from mpi4py import MPI
with open("/proc/self/maps") as file:
    files = re.findall(r"/\\S*/libmpi\\w*\\.so\\S*", file.read())
print(json.dumps([MPI.Get_library_version(), *files]))
"""


class Answer(NamedTuple):
    """The MPI's own words about its version, its file, and why it is this one; if there is none,
    the reason alone."""

    version: str | None
    library: str | None
    reason: str


def ask() -> Answer:
    """Return which MPI `import mpi4py` would get."""
    command = [sys.executable, "-c", PROGRAM]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Answer(None, None, f"mpi4py is not imported within {SECONDS} seconds")
    if ended.returncode:
        errors = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        return Answer(None, None, f"mpi4py cannot be imported: {errors[-1]}")
    version, *files = json.loads(ended.stdout.splitlines()[-1])
    library = files[0] if files else None
    return Answer(first_line(version), library, _reason(library))


def _reason(library: str | None) -> str:
    """Why mpi4py takes this file: it looks in its own process first, then at its variable."""
    if _is_among(library, places.entries(os.environ.get("LD_PRELOAD", ""))):
        return "LD_PRELOAD names it"
    if _is_among(library, os.environ.get("MPI4PY_LIBMPI", "").split(os.pathsep)):
        return "MPI4PY_LIBMPI names it"
    return "mpi4py finds it by itself (pscompy's: pscompy run --mpi, or import pscompy.mpi first)"


def _is_among(library: str | None, paths: list[str]) -> bool:
    return library is not None and any(Path(it).resolve() == Path(library) for it in paths if it)
