"""Builds libmpi.so.12 and its host: for setup.py, and for tests into a folder.

    python -m pscompy_mpi.build FOLDER [FLAG ...]      # such as -fsanitize=address

The compiler is CC, or the one that Python was built with; CPPFLAGS, CFLAGS and LDFLAGS count, too.
Nothing here imports what is compiled.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from pscompy import __version__
from pscompy_mpi import generate
from pscompy_mpi.places import HOST, LIBRARY

HERE = Path(__file__).absolute().parent
ROOT = HERE.parents[1]

FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O3", "-fPIC", "-fvisibility=hidden", "-shared")
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def sources() -> list[Path]:
    """The files of the library that were written by hand."""
    return [path for path in sorted((HERE / "src").glob("*.c")) if path not in hosts()]


def hosts() -> list[Path]:
    """The files of the host, which include Python.h."""
    return sorted((HERE / "src").glob("host*.c"))


def depends() -> list[Path]:
    """All files that the library and its host are made of, in this folder."""
    return [*HERE.glob("*.py"), *HERE.glob("*.h"), *HERE.glob("src/*.[ch]")]


def build(folder: Path, more: Sequence[str] = ()) -> None:
    """Compile both into a folder; `more` are further flags. A warning is an error."""
    made = folder / "made"
    generate.write(made)
    compile_library(made, folder / LIBRARY, (*WARNINGS, "-g", *more))
    compile_host(made, folder / HOST, (*WARNINGS, "-g", *more))


def compile_library(made: Path, target: Path, more: Sequence[str] = ()) -> None:
    """Compile the library; `made` has what generate.py writes. Raises `CalledProcessError`."""
    files = [*sources(), made / "functions.c"]
    version = f'-DPSC_MPI_LIBRARY_VERSION="{__version__}"'
    link = [f"-Wl,-soname,{LIBRARY}", "-Wl,-z,defs", "-pthread", "-ldl"]
    _compile(made, target, [*more, version, *files], link)


def compile_host(made: Path, target: Path, more: Sequence[str] = ()) -> None:
    """Compile the host, which is for all versions of Python. Raises `CalledProcessError`."""
    headers = f"-I{sysconfig.get_path('include')}"
    _compile(made, target, [*more, headers, *hosts()], [])


def _compile(made: Path, target: Path, own: Sequence[str | Path], link: list[str]) -> None:
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    folders = [f"-I{made}", f"-I{ROOT}", f"-I{ROOT / 'mpi'}"]
    given = [*_flags("CPPFLAGS"), *_flags("CFLAGS")]
    command = [*shlex.split(compiler), *FLAGS, *given, *folders, *own]
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([*command, "-o", target, *_flags("LDFLAGS"), *link], check=True)


def _flags(name: str) -> list[str]:
    return shlex.split(os.environ.get(name, ""))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build(Path(sys.argv[1]), sys.argv[2:])
