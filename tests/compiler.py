"""Compiles the programs in C that tests run, into build/tests. Each object and each program is
compiled once, until its sources, their headers, its flags or the compiler change.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMON = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g1", "-Og", "-pthread"]
COMMON += ["-DPSC_DEBUG", f"-I{ROOT}"]  # PSC_DEBUG: with assertions
ADDRESS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# TSan does not model fences; the sources use them only to order flags relative to data.
THREAD = ["-fsanitize=thread", "-fno-sanitize-recover=all", "-Wno-tsan"]


class Compiler:
    def __init__(self, folder: Path = ROOT / "build/tests") -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(
        self,
        made: Path,
        sources: Iterable[Path],
        flags: Sequence[str],
        macros: Sequence[str] = (),
        link: Sequence[str] = (),
    ) -> Path:
        """Compile the sources with COMMON and these flags into the program `made`; `macros` are
        flags for the sources of the tests only, `link` for the linker only. Returns `made`."""
        made.parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda it: self._object(it, flags, macros), sources))
        shutil.copy(self._kept(made.stem, [*flags, *objects, *link], ""), made)
        return made

    def _object(self, source: Path, flags: Sequence[str], macros: Sequence[str]) -> Path:
        if not source.is_relative_to(ROOT / "pscompy"):
            flags = [*flags, *macros]
        text = "\0".join(content(it) for it in with_headers(source))
        flags = [it for it in flags if not it.startswith("-D") or re.search(name_of(it), text)]
        return self._kept(f"{source.stem}.o", [*flags, "-c", source], text)

    def _kept(self, name: str, arguments: Sequence[str | Path], text: str) -> Path:
        """What gcc makes with these arguments of files with this text; it is made at most once."""
        command = ["gcc", *COMMON, *arguments]
        key = hashlib.sha256("\0".join([version(), *map(str, command), text]).encode())
        made = self._folder / f"{name}-{key.hexdigest()[:32]}"
        with open(f"{made}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                subprocess.run([*command, "-o", f"{made}.part"], check=True)
                Path(f"{made}.part").rename(made)
        made.touch()
        return made

    def forget(self, before: float) -> None:
        """Remove what no run has used since this time."""
        for path in self._folder.iterdir():
            if path.stat().st_mtime < before:
                path.unlink()


def cases(sources: Iterable[Path]) -> list[str]:
    """The names of the cases that these sources define by CASE (cases.h)."""
    return [name for it in sources for name in re.findall(r"^CASE\((\w+)", content(it), re.M)]


@cache
def version() -> str:
    return subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True).stdout


def with_headers(source: Path) -> list[Path]:
    """The source, and the files of the project that it includes, also indirectly."""
    found = [source]
    for path in found:
        found += [it for it in included(path) if it not in found]
    return found


@cache
def included(path: Path) -> list[Path]:
    """The files that the text of this one includes, of the project only."""
    names = re.findall(r'^ *# *include "(.+)"', content(path), re.M)
    places = [[path.parent / name, ROOT / name] for name in names]
    return [next(it for it in two if it.exists()).resolve() for two in places]


@cache
def content(path: Path) -> str:
    return path.read_text()


def name_of(definition: str) -> str:
    """A pattern of the name that a flag -D defines."""
    return rf"\b{re.escape(definition[2:].partition('=')[0])}\b"
