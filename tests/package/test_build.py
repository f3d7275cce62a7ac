"""The build hook, run on a small project with one plug-in."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pscompy

ROOT = Path(pscompy.get_include())
BUILD = """
from cffi import FFI

HEADERS = {headers!r}
ffibuilder = FFI()
ffibuilder.cdef("uintptr_t nu_transport(void);")
ffibuilder.set_source(
    "pscompy.plugins.nu._native",
    "#include <stdint.h>\\nuintptr_t nu_transport(void);",
    sources=["pscompy/plugins/nu/transport.c"],
)
"""
BINDING = """
#include <Python.h>
#ifndef __OPTIMIZE__
#error built without optimisation
#endif
PyObject *PyInit__binding(void);
"""
SOURCE = '#include <stdint.h>\n#include "nu.h"\nuintptr_t nu_transport(void) { return NU; }\n'

pytestmark = pytest.mark.skipif(
    not (ROOT / "setup.py").exists(), reason="pscompy is installed without its build files"
)


class Project:
    """A tree with the build hook of pscompy and the plug-in `nu`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugin = folder / "pscompy/plugins/nu"
        self.plugin.mkdir(parents=True)
        (folder / "pscompy/transport").mkdir()
        (folder / "pscompy/api/c").mkdir(parents=True)
        for name in ("setup.py", "setup.cfg", "pyproject.toml", "pscompy/__init__.py"):
            shutil.copy(ROOT / name, folder / name)
        self.write("pscompy/transport/transport.h", "")
        self.write("pscompy/api/c/module.c", BINDING)
        self.write("pscompy/plugins/nu/build.py", BUILD.format(headers=("stdint.h",)))
        self.write("pscompy/plugins/nu/transport.c", SOURCE)
        self.write("pscompy/plugins/nu/nu.h", "#define NU 7\n")

    def write(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content)

    def build(self, **environ: str) -> subprocess.CompletedProcess[str]:
        without_ours = {k: v for k, v in os.environ.items() if k != "PSP_BUILD_PLUGINS"}
        return subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=self.folder,
            env=without_ours | environ,
            capture_output=True,
            text=True,
            timeout=250,
        )

    def built(self) -> list[Path]:
        return sorted(self.plugin.glob("_native*.so"))

    def answer(self) -> str:
        """The result of the built plug-in's function."""
        program = "from _native import lib; print(lib.nu_transport())"
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, cwd=self.plugin, capture_output=True, text=True, check=True
        ).stdout.strip()

    def not_built(self) -> dict[str, str]:
        record: dict[str, str] = json.loads(
            (self.folder / "pscompy/plugins/not_built.json").read_text()
        )
        return record


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("header", ["pscompy/plugins/nu/nu.h", "pscompy/transport/transport.h"])
def test_a_plugin_is_rebuilt_when_a_header_changes_and_only_then(project, header):
    assert project.build().returncode == 0
    assert project.answer() == "7"
    assert project.not_built() == {}
    (extension,) = project.built()
    made = extension.stat().st_mtime_ns
    project.build()
    assert extension.stat().st_mtime_ns == made
    project.write("pscompy/plugins/nu/nu.h", "#define NU 8\n")
    os.utime(project.plugin / "nu.h", ns=(0, 0))
    later = made + 2_000_000_000
    os.utime(project.folder / header, ns=(later, later))
    project.build()
    assert project.answer() == "8"


def test_a_plugin_without_its_header_is_left_out_with_the_reason(project):
    project.write("pscompy/plugins/nu/build.py", BUILD.format(headers=("nothing/of_this.h",)))
    ended = project.build()
    assert ended.returncode == 0, ended.stderr
    assert project.not_built() == {"nu": "nothing/of_this.h missing"}
    assert project.built() == []


def test_a_mandatory_plugin_without_its_header_fails_the_build(project):
    project.write("pscompy/plugins/nu/build.py", BUILD.format(headers=("nothing/of_this.h",)))
    ended = project.build(PSP_BUILD_PLUGINS="nu")
    assert ended.returncode != 0
    assert "PSP_BUILD_PLUGINS: nu: nothing/of_this.h missing" in ended.stderr


def test_a_mandatory_plugin_that_does_not_exist_fails_the_build(project):
    ended = project.build(PSP_BUILD_PLUGINS="nu,nuclear")
    assert ended.returncode != 0
    assert "no plug-in nuclear (there are nu)" in ended.stderr


def test_code_that_does_not_compile_fails_the_build(project):
    project.write("pscompy/plugins/nu/transport.c", "#error broken\n")
    assert project.build().returncode != 0


def test_the_binding_is_optimised_whatever_cflags_say(project):
    ended = project.build(CFLAGS="-g0")
    assert ended.returncode == 0, ended.stderr


def test_an_mpi_library_that_does_not_compile_fails_the_build(project):
    mpi = project.folder / "mpi/pscompy_mpi"
    shutil.copytree(ROOT / "mpi/pscompy_mpi", mpi, ignore=shutil.ignore_patterns("*.so*", "*.c"))
    project.write("mpi/pscompy_mpi/src/wait.c", "#error broken on purpose\n")
    ended = project.build()
    assert ended.returncode != 0
    assert "broken on purpose" in ended.stderr
    assert "libmpi.so.12 of pscompy_mpi" in ended.stderr
