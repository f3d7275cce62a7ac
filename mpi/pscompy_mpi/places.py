"""Where the library, its host and Python's own library are on this machine.

Nothing here imports what is compiled: setup.py, launchers and `pscompy info` use it, too.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

LIBRARY, HOST = "libmpi.so.12", "_host.so"

# Variables that a launcher sets for ranks that are no Python programs; read by src/interpreter.c.
PYTHON, LIBPYTHON = "PSCOMPY_MPI_PYTHON", "PSCOMPY_MPI_LIBPYTHON"


class NotBuilt(ImportError):
    """The library is not in the package; the text says how to build it."""


def library() -> Path:
    """Return the path of libmpi.so.12. Raises `NotBuilt`."""
    path = Path(__file__).absolute().with_name(LIBRARY)
    if not path.exists():
        raise NotBuilt(f"{path} is not built: pip install -e . or setup.py build_ext --inplace")
    return path


def entries(preloaded: str) -> list[str]:
    """Split a value of LD_PRELOAD."""
    return preloaded.replace(":", " ").split()


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a process gets this MPI, whatever it is linked to. `environ`
    are those that it has otherwise. Raises `NotBuilt`."""
    path = str(library())
    others = [it for it in entries(environ.get("LD_PRELOAD", "")) if it != path]
    return {
        "LD_PRELOAD": ":".join([path, *others]),
        "MPI4PY_LIBMPI": path,
        PYTHON: sys.executable,
        LIBPYTHON: libpython(),
    }


def libpython() -> str:
    """Return the shared library of this Python, by its path if it is found."""
    name = f"libpython{sysconfig.get_config_var('LDVERSION')}.so.1.0"
    places = [sysconfig.get_config_var("LIBDIR") or "", f"{sys.base_prefix}/lib"]
    places += [f"{places[0]}/{sysconfig.get_config_var('MULTIARCH')}"]
    found = (Path(place, name) for place in places if Path(place, name).exists())
    return str(next(found, name))
