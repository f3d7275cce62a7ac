"""Examples of the papers: blocks of Markdown, run as a reader would run them.

* ```python, first line "# name.py": a file, which later blocks of the page use; without such a
  line: a program that is run.
* ```sh: commands, run in the page's folder.
* ```output: what the program or the commands before it print, in any order of lines. "..." is
  anything, within a line or, on a line of its own, any lines.
* ```text and blocks without a language are not run: nothing in them can fail.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import pscompy

ROOT = Path(pscompy.get_include())
SECONDS = 250
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int

    @property
    def name(self) -> str | None:
        """Name of the file that this block writes; None if it writes none."""
        match = re.match(r"# (\w+\.py)\n", self.text)
        return match[1] if match and self.language == "python" else None


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        yield Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)


class Desk:
    """A folder for a page's files, with `python` and `pscompy` on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "page"
        self.folder.mkdir()
        # makes the folder a project of its own, whatever configuration lies above it
        self.write("pytest.ini", "[pytest]\n")
        self._programs = folder / "bin"
        self._programs.mkdir()
        self._program("python", f'exec {sys.executable} "$@"')
        self._program("pscompy", f'exec {sys.executable} -m pscompy "$@"')

    def _program(self, name: str, command: str) -> None:
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{command}\n")
        path.chmod(0o755)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, block: Block) -> str:
        """Run the block; returns its output."""
        if block.language == "python":
            self.write("example.py", block.text)
        script = block.text if block.language == "sh" else "python example.py"
        path = f"{self._programs}{os.pathsep}{os.environ['PATH']}"
        # Without a buffer three processes that print mix their lines.
        foreign = ("PSP_", "PYTHONUNBUFFERED")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        ended = subprocess.run(
            ["bash", "-euc", script],
            cwd=self.folder,
            env={**kept, "PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert ended.returncode == 0, f"line {block.line}: {ended.stdout}{ended.stderr}"
        return ended.stdout


def differs(expected: str, printed: str) -> list[str]:
    """The expected lines that are missing in the output, and the lines of output that were not
    expected."""
    patterns = expected.splitlines()
    lines = printed.splitlines()
    missing = []
    for pattern in filter(lambda text: text != "...", patterns):
        regex = ".*".join(re.escape(part) for part in pattern.split("..."))
        found = next((line for line in lines if re.fullmatch(regex, line)), None)
        if found is None:
            missing.append(f"- {pattern}")
        else:
            lines.remove(found)
    return missing if "..." in patterns else missing + [f"+ {line}" for line in lines]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
