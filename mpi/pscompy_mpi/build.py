"""Builds libmpi.so.12 and its host into a folder.

python -m pscompy_mpi.build FOLDER
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

from pscompy import __version__
from pscompy_mpi import generate

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIBRARY, HOST = "libmpi.so.12", "_host.so"

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O3", "-g", "-fPIC", "-fvisibility=hidden", "-shared"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def sources() -> list[Path]:
    """The files of the library that were written by hand."""
    return [path for path in sorted((HERE / "src").glob("*.c")) if path.name != "host.c"]


def build(folder: Path, more: list[str] | None = None) -> None:
    """Compile both; `more` are further flags."""
    made = folder / "made"
    generate.write(made)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    own: list[str | Path] = [*compiler, *FLAGS, *WARNINGS, *(more or [])]
    own += [f"-I{made}", f"-I{ROOT}", f"-I{ROOT / 'mpi'}"]
    generated = [made / "functions.c", made / "unfinished.c"]
    version = f'-DPSC_MPI_LIBRARY_VERSION="{__version__}"'
    library = [*own, version, *sources(), *generated, f"-Wl,-soname,{LIBRARY}", "-Wl,-z,defs"]
    subprocess.run([*library, "-o", folder / LIBRARY, "-pthread", "-ldl"], check=True)
    headers = f"-I{sysconfig.get_path('include')}"
    host = [*own, headers, HERE / "src/host.c", "-o", folder / HOST]
    subprocess.run(host, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build(Path(sys.argv[1]))
