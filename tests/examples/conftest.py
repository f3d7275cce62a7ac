"""A virtual environment of its own, into which the example packages are installed as users do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

import pscompy

ROOT = Path(pscompy.__file__).parents[1]
EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT = 800
# The scripts that pip would have made, of packages that the environment inherits.
SCRIPTS = {
    "pip": "from pip._internal.cli.main import main",
    "pscompy": "from pscompy.cli.main import main",
    "pytest": "from pytest import console_main as main",
}


class Environment:
    """A virtual environment that uses `pscompy` and its dependencies from the environment of the
    tests; packages installed into it are visible nowhere else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        venv.create(folder, symlinks=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        inherited = [str(ROOT), *(path for path in sys.path if path.endswith("-packages"))]
        lines = [f"import site; site.addsitedir({path!r})\n" for path in inherited]
        (packages / "inherited.pth").write_text("".join(lines))
        for name, imported in SCRIPTS.items():
            script = folder / "bin" / name
            script.write_text(f"#!{self.python}\n{imported}\nraise SystemExit(main())\n")
            script.chmod(0o755)

    def install(self, example: str, copy: Path) -> None:
        """Install from a copy, because building writes beside the sources."""
        shutil.copytree(EXAMPLES / example, copy)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--python", self.python, "install", "--no-index"),
                *("--no-build-isolation", "--no-deps", "--disable-pip-version-check", copy),
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, *arguments: object, **variables: str) -> str:
        """Run a Python program. `variables` lack the prefix PSP_."""
        return self.execute([self.python, *map(str, arguments)], self.folder, **variables)

    def execute(self, command: Sequence[str | Path], cwd: Path, **variables: str) -> str:
        """Run a command, which must succeed, with the environment's scripts first on PATH. Returns
        its output."""
        foreign = ("PMI", "PSP_", "SLURM_", "PYTHONPATH", "VIRTUAL_ENV")
        environ = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        environ |= {f"PSP_{name}": value for name, value in variables.items()}
        environ |= {"PATH": f"{self.folder / 'bin'}:{environ['PATH']}", "PIP_NO_INDEX": "1"}
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with both example packages installed."""
    folder = tmp_path_factory.mktemp("examples")
    environment = Environment(folder / "venv")
    for example in ("transport_python", "transport_c"):
        environment.install(example, folder / example)
    return environment
