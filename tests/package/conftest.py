"""Distributions and plug-ins made for a test, in folders of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pscompy
from pscompy.plugin import Transport, Var, count, hookimpl
from tests.program import module

ROOT = Path(pscompy.get_include())
NAME, PRIORITY = "alpha", 50


@hookimpl
def pscompy_transport() -> Transport:
    return Transport(NAME, PRIORITY, (Var("SLOTS", "8", count, "Slots."),), lambda: 0)


class Site:
    """A folder with installed distributions; `run` starts programs that see them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages = folder / "site"
        self.packages.mkdir()

    def install(self, distribution: str, files: dict[str, str], entry_points: str = "") -> None:
        """Install a distribution like pip: its files, and the metadata beside them."""
        info = self.packages / f"{distribution.replace('-', '_')}-1.0.dist-info"
        records = {
            f"{info.name}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n",
            f"{info.name}/entry_points.txt": entry_points,
            **files,
        }
        for name, content in records.items():
            path = self.packages / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in records))

    @staticmethod
    def plugin(name: str, priority: int) -> str:
        """The code of a plug-in with one transport."""
        return module(pscompy_transport, NAME=name, PRIORITY=priority)

    def transport(self, name: str, code: str | None = None, priority: int = 50) -> None:
        """Install a distribution that contains one transport."""
        code = self.plugin(name, priority) if code is None else code
        entry = f"[pscompy]\n{name} = {name}_fabric\n"
        self.install(f"fabric-{name}", {f"{name}_fabric/__init__.py": code}, entry)

    def run(
        self, *arguments: str, cwd: Path | None = None, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with these distributions; inherits no PSP_ variables."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd or self.folder,
            env=os.environ
            | {"PYTHONPATH": f"{self.packages}{os.pathsep}{ROOT}"}
            | {f"PSP_{name}": text for name, text in environ.items()},
            capture_output=True,
            text=True,
            timeout=250,
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
