"""./run names the Debian package to install for each program that a machine lacks."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import pscompy

RUN = Path(pscompy.get_include()) / "run"
TOOLS = ("bash", "dirname", "cat", "find", "sort", "xargs", "sha256sum", "env")

pytestmark = pytest.mark.skipif(
    not RUN.exists(), reason="pscompy is installed without its source folder"
)


class Machine:
    """A PATH with few programs, and a copy of ./run in a project."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.project = folder / "project"
        self.programs.mkdir()
        (self.project / "pscompy").mkdir(parents=True)
        for name in ("setup.py", "setup.cfg", "pyproject.toml"):
            (self.project / name).touch()
        shutil.copy(RUN, self.project / "run")
        for name in TOOLS:
            self.has(name)

    def has(self, name: str) -> None:
        found = shutil.which(name)
        assert found
        (self.programs / name).symlink_to(found)

    def has_script(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
        path.chmod(0o755)

    def has_python(self, lacking: str = "nothing", answer: str = "") -> None:
        """Install a `python3` that runs the real Python; if its arguments contain `lacking` it
        runs `answer` instead."""
        real = f'exec {sys.executable} "$@"'
        self.has_script("python3", f'case "$*" in *{lacking}*) {answer} ;; *) {real} ;; esac')

    def run(self, *arguments: str) -> tuple[int, str]:
        environ = {k: v for k, v in os.environ.items() if k != "CC"}
        ended = subprocess.run(
            [str(self.project / "run"), *arguments],
            env=environ | {"PATH": str(self.programs)},
            capture_output=True,
            text=True,
        )
        return ended.returncode, ended.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_everything_that_is_missing_is_named_at_once(machine):
    code, said = machine.run("tests")
    assert code == 1
    packages = "python3 python3-venv python3-dev gcc libc6-dev"
    assert said.splitlines() == [
        "run: Python 3 is missing.",
        "run: the C compiler is missing.",
        f"run: install what is missing: sudo apt install {packages}",
    ]


def test_without_python(machine):
    machine.has("gcc")
    code, said = machine.run("tests")
    assert code == 1
    assert said.endswith("sudo apt install python3 python3-venv python3-dev\n")


@pytest.mark.parametrize(
    ("lacking", "answer", "package"),
    [("ensurepip", "exit 1", "python3-venv"), ("get_path", "echo /none", "python3-dev")],
)
def test_without_a_part_of_python(machine, lacking, answer, package):
    machine.has_python(lacking, answer)
    machine.has("gcc")
    code, said = machine.run("demo")
    assert code == 1
    assert said.endswith(f"sudo apt install {package}\n")


def include_is_there():
    return Path(sysconfig.get_path("include"), "Python.h").exists()


needs_headers = pytest.mark.skipif(not include_is_there(), reason="Python.h is not installed")


@needs_headers
def test_without_a_compiler(machine):
    machine.has_python()
    assert machine.run("tests")[1].endswith("sudo apt install gcc libc6-dev\n")


@needs_headers
def test_without_the_headers_of_the_c_library(machine):
    machine.has_python()
    machine.has_script("gcc", "exit 1")
    assert machine.run("tests")[1].endswith("sudo apt install libc6-dev\n")


@pytest.mark.parametrize("arguments", [(), ("fly",), ("demo", "more")])
def test_a_wrong_command_line(machine, arguments):
    code, said = machine.run(*arguments)
    assert code == 2
    assert said == (
        "usage: ./run demo | ./run tests [PYTEST ARGUMENTS] | ./run mpi-tests [--help]"
        " | ./run bench [--help]"
        " | ./run wheels [PYTHON...]\n"
    )
