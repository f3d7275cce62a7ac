"""Loads the library into this process, so that mpi4py takes it, and runs programs so.

`import pscompy.mpi` and `python -m pscompy.mpi` are the doors to this module.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
from pathlib import Path

from pscompy_mpi import places

OURS = "pscompy "  # begins what MPI_Get_library_version says
VERSION_ROOM = 8192  # bytes, MPI_MAX_LIBRARY_VERSION_STRING of all that are known
USAGE = "usage: python -m pscompy.mpi program.py | -m module [argument ...]"


def load() -> None:
    """Load the library for all that follows: mpi4py looks for MPI in its own process first. Raises
    `ImportError` if there is another MPI already, or the library is not built."""
    mpi4py = sys.modules.get("mpi4py.MPI")
    if mpi4py is not None and not mpi4py.Get_library_version().startswith(OURS):
        raise ImportError(
            f"mpi4py.MPI was imported before, with {first_line(mpi4py.Get_library_version())}:"
            " import pscompy.mpi first, or start the program by `pscompy run --mpi`"
        )
    ctypes.CDLL(str(places.library()), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    version = _version_in_process()
    if not version.startswith(OURS):
        raise ImportError(
            f"another MPI was loaded before, {first_line(version)}: import pscompy.mpi before all"
            " that is linked to MPI, or start the program by `pscompy run --mpi`"
        )


def _version_in_process() -> str:
    """The version text of the MPI that mpi4py would find in this process."""
    text, n = ctypes.create_string_buffer(VERSION_ROOM), ctypes.c_int()
    ctypes.CDLL(None).MPI_Get_library_version(text, ctypes.byref(n))
    return text.value.decode(errors="replace")


def first_line(version: str) -> str:
    """Return the first line of what MPI_Get_library_version says."""
    return " ".join(version.strip("\0").partition("\n")[0].split())


def run(arguments: list[str]) -> None:
    """Run a program, or with -m a module, as Python does."""
    if arguments[:1] == ["-m"] and len(arguments) > 1:
        sys.argv[:] = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments and not arguments[0].startswith("-"):
        sys.argv[:] = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        sys.exit(USAGE)
