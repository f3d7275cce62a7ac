"""Compiles the programs in C that tests run. All programs and all processes of a run share the
objects, so that each source is compiled once for each set of flags.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMON = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g1", "-Og", "-pthread"]
COMMON += [f"-I{ROOT}"]
ADDRESS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# TSan does not model fences; the sources use them only to order flags relative to data.
THREAD = ["-fsanitize=thread", "-fno-sanitize-recover=all", "-Wno-tsan"]


class Compiler:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

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
        subprocess.run(["gcc", *COMMON, *flags, "-o", made, *objects, *link], check=True)
        return made

    def _object(self, source: Path, flags: Sequence[str], macros: Sequence[str]) -> Path:
        defined = [flag for flag in flags if flag.startswith("-D")]
        flags = [flag for flag in flags if flag not in defined]
        if not source.is_relative_to(ROOT / "pscompy"):
            defined += macros
        command, text = ["gcc", *COMMON, *flags, source], b""
        if defined and (used := preprocessed(*command, *defined)) != preprocessed(*command):
            command, text = [*command, *defined], used
        key = hashlib.sha256("\0".join([*flags, str(source)]).encode() + text).hexdigest()
        made = self._folder / f"{source.stem}-{key[:32]}.o"
        with open(made.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                part = made.with_suffix(".part")
                subprocess.run([*command, "-c", "-o", part], check=True)
                part.rename(made)
        return made


def preprocessed(*command: str | Path) -> bytes:
    return subprocess.run([*command, "-E"], capture_output=True, check=True).stdout
