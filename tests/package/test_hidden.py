"""A foreign module on the user's path that hides a plug-in is reported by its file name."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pscompy
from pscompy.discovery import registry
from tests.program import module, program

STRANGER = "raise SystemExit('the stranger was run')"


def prints_problems():
    print(json.dumps({it.name: it.problem for it in registry.load()[1]}))


def problem_of(site, name, **where):
    file = where.get("cwd", site.folder) / "program.py"
    file.write_text(program(prints_problems))
    ended = site.run(str(file), **where)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)[name]


def test_a_module_beside_the_script(site):
    site.transport("alpha")
    (site.folder / "alpha_fabric.py").write_text(STRANGER)
    problem = problem_of(site, "alpha")
    assert f"hidden by {site.folder}/alpha_fabric.py" in problem
    assert "of fabric-alpha" in problem


def test_a_package_beside_the_script(site):
    site.transport("alpha")
    (site.folder / "alpha_fabric").mkdir()
    (site.folder / "alpha_fabric" / "__init__.py").write_text(STRANGER)
    assert f"hidden by {site.folder}/alpha_fabric/__init__.py:" in problem_of(site, "alpha")


def test_without_a_stranger_there_is_no_problem(site):
    site.transport("alpha")
    assert problem_of(site, "alpha") is None


def test_a_single_module_is_compared_too(site):
    code = site.plugin("alpha", 5)
    site.install("single", {"alpha_one.py": code}, "[pscompy]\nalpha = alpha_one\n")
    assert problem_of(site, "alpha") is None
    (site.folder / "alpha_one.py").write_text(STRANGER)
    assert "alpha_one.py" in problem_of(site, "alpha")


def editable(site):
    """An editable installation: its files are in the project, and its metadata lists none."""
    project = site.folder / "project"
    site.transport("alpha")
    site.transport("beta")
    project.mkdir()
    (site.packages / "alpha_fabric").rename(project / "alpha_fabric")
    info = site.packages / "fabric_alpha-1.0.dist-info"
    (info / "RECORD").write_text("__editable__.alpha.pth,,\n")
    return project


def test_an_editable_installation(site):
    assert problem_of(site, "alpha", cwd=editable(site)) is None


@pytest.mark.parametrize(
    ("stranger", "reason"),
    [
        ("", "{file} declares no transport: it needs a function pscompy_transport marked"),
        (STRANGER, "alpha_fabric raised SystemExit: the stranger was run"),
    ],
)
def test_a_stranger_before_an_editable_installation(site, stranger, reason):
    """The metadata does not name the plug-in's file, so the foreign module is imported and
    reported."""
    editable(site)
    (site.folder / "alpha_fabric.py").write_text(stranger)
    problem = problem_of(site, "alpha")
    assert reason.format(file=f"{site.folder}/alpha_fabric.py") in problem
    assert problem_of(site, "beta") is None


def test_a_command_is_looked_at_too(site):
    def main(arguments):
        """Greet."""
        print("hello")
        return 0

    files = {"greet.py": module(main)}
    site.install("greeting", files, "[pscompy.commands]\ngreet = greet:main\n")
    assert site.run("-m", "pscompy", "greet").stdout == "hello\n"
    (site.folder / "greet.py").write_text(STRANGER)
    ended = site.run("-m", "pscompy", "greet")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "hidden by" in ended.stderr
    assert "hidden by" in site.run("-m", "pscompy", "--help").stdout


def test_a_checkout_beside_the_program_hides_nothing(tmp_path):
    """A folder `pscompy` without a package does not hide pscompy, however pscompy is installed."""
    (tmp_path / "pscompy" / "docs").mkdir(parents=True)
    (tmp_path / "program.py").write_text("import pscompy; print(pscompy.World.__name__)")
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert (done.stdout, done.stderr) == ("World\n", "")


@pytest.mark.parametrize(
    "arguments",
    [("-c", "import pscompy; pscompy.World"), ("-S", "-m", "pscompy", "info")],
    ids=["with what pscompy needs", "without"],
)
def test_a_source_folder_in_which_nothing_is_built(tmp_path, arguments):
    source = Path(pscompy.get_include()) / "pscompy"
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(source, tmp_path / "pscompy", ignore=ignored)
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"nothing is built in {tmp_path}, the source folder of pscompy" in ended.stderr


def without_cffi():
    sys.modules["_cffi_backend"] = None
    importlib.import_module("pscompy.core")


def test_without_cffi_that_is_what_is_missing():
    command = [sys.executable, "-c", program(without_cffi)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "_cffi_backend" in ended.stderr
    assert "nothing is built" not in ended.stderr
