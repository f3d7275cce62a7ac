"""Runs mpi4py's demos and applications from PyPI, unchanged, and compares them with MPICH.

    python -m tests.mpi.applications [--tcp] [--alone] [--folder FOLDER] [NAME ...]

NAMEs are parts of names; all programs by default. Each runs on the library and on MPICH; a program
is right if its output has what demos.py says, and the lines that it has on MPICH, in any order. The
demos are of the source distribution of mpi4py, the applications in an environment of their own
beside those of the benchmarks' peers.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bench import peers
from bench.native import NotMeasured
from tests.mpi.demos import APPLICATIONS, DEMOS, Program
from tests.mpi.launchers import Ended, Launcher, mpich, ours
from tests.mpi.upstream import bring

SECONDS = 180  # after which a program hangs
RIGHT, ABSENT = "right", "absent"


class Desk:
    """A copy of the demos, and the Python that runs them."""

    def __init__(self, demos: Path, python: Path, tcp: bool, alone: bool) -> None:
        self._demos, self._python, self._tcp, self._alone = demos, python, tcp, alone

    def judge(self, program: Program) -> tuple[str, str]:
        """A word for the outcome, and the reason if it is not RIGHT."""
        folder = self._demos / program.folder
        if not folder.is_dir():
            return "missing", "not in the source distribution"
        if program.build and (trouble := self._built(program, folder)):
            return ABSENT, f"cannot be built: {trouble}"
        mine = self._run(ours(program.ranks, self._tcp, python=str(self._python)), program)
        word, reason = verdict(program, mine)
        if word == ABSENT or self._alone:
            return word, reason
        other = self._run_mpich(program)
        if word != RIGHT:
            alike = verdict(program, other)[0] == word if other else False
            return (ABSENT, f"on MPICH, too: {reason}") if alike else (word, reason)
        return against(program, mine, other)

    def _run(self, launcher: Launcher, program: Program) -> Ended | None:
        folder = self._demos / program.folder
        arguments = program.arguments.split()
        return launcher.searching(peers.ROOT).run(arguments, folder, SECONDS, program.given)

    def _run_mpich(self, program: Program) -> Ended | None:
        """The output comes from a file for each rank, because its lines get mixed in a pipe."""
        launcher = mpich(program.ranks, self._tcp, str(self._python))
        if launcher is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            mpiexec, *words = launcher.command
            if program.arguments.startswith("-- "):
                *words, _ = words
                program = program._replace(arguments=program.arguments.removeprefix("-- "))
            command = (mpiexec, "-outfile-pattern", f"{folder}/%r", *words)
            ended = self._run(launcher._replace(command=command), program)
            output = "".join(path.read_text() for path in sorted(Path(folder).iterdir()))
        return ended and ended._replace(output=output)

    def _built(self, program: Program, folder: Path) -> str:
        """The last line of what the command says if it fails."""
        path = f"{self._python.parent}{os.pathsep}{os.environ['PATH']}"
        ended = subprocess.run(
            ["sh", "-ec", program.build],
            cwd=folder,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
        )
        return last_line(ended.stderr or "no word") if ended.returncode else ""


def verdict(program: Program, ended: Ended | None) -> tuple[str, str]:
    """The outcome of a program by itself."""
    if ended is None:
        return "hung", program.needs
    if ended.code == 0 and re.search(program.shows, ended.output):
        return ("right", "") if not program.needs else ("right", f"in spite of: {program.needs}")
    if program.needs:
        return ABSENT, f"needs {program.needs}"
    return "failed", f"code {ended.code}: {last_line(ended.errors)}"


def against(program: Program, mine: Ended | None, other: Ended | None) -> tuple[str, str]:
    """The outcome of a program that is right by itself, beside MPICH's."""
    if other is None or other.code:
        return RIGHT, "MPICH fails" if other else "not compared with MPICH"
    assert mine is not None
    lacking = [*(lines(program, other) - lines(program, mine))]
    return ("differs", f"MPICH says {lacking[0]!r}") if lacking else (RIGHT, "")


def lines(program: Program, ended: Ended) -> Counter[str]:
    """The lines of output without what varies, and how often each is there."""
    text = re.sub(program.varies, "", ended.output, flags=re.M) if program.varies else ended.output
    return Counter(" ".join(line.split()) for line in text.splitlines() if line.strip())


def last_line(text: str) -> str:
    """The last line of the ranks, not of the launcher."""
    said = [line for line in text.splitlines() if line.strip() and "pscompy run:" not in line]
    return said[-1][:150] if said else "no word"


def chosen(names: Iterable[str]) -> list[Program]:
    every = [*DEMOS, *APPLICATIONS]
    return [it for it in every if not names or any(name in it.name for name in names)]


def versions(python: Path) -> str:
    """The packages of the applications, with versions."""
    packages = peers.PACKAGES["applications"]
    command = [python, "-m", "pip", "list", "--format=freeze"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return ", ".join(it for it in listed.split() if it.lower().split("==")[0] in packages)


def run(options: argparse.Namespace, temporary: Path) -> int:
    folder = peers.environment("applications")
    if isinstance(folder, NotMeasured):
        sys.exit(str(folder))
    python = folder / "bin/python"
    source = bring(options.folder or temporary).parent
    copy = temporary / "mpi4py"
    for name in ("demo", "conf", "src"):
        shutil.copytree(source / name, copy / name)
    print(versions(python))
    desk = Desk(copy / "demo", python, options.tcp, options.alone)
    counted: Counter[str] = Counter()
    for program in chosen(options.names):
        word, reason = desk.judge(program)
        counted[word] += 1
        print(f"{program.name:36} {word:8} {reason}", flush=True)
    print(", ".join(f"{n} {word}" for word, n in counted.items()))
    return 0 if set(counted) <= {RIGHT, ABSENT} else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without MPICH")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(run(options, Path(temporary)))


if __name__ == "__main__":
    main()
