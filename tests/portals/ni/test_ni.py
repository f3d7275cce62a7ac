"""The software NI of the portals plug-in: two processes under AddressSanitizer and UBSan; cases
with several threads also under ThreadSanitizer.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.compiler import ADDRESS, THREAD, Compiler, cases

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NI = ROOT / "softni/pscompy_softni"
CASES = cases(sorted(HERE.glob("*.c")))
THREADED = ("many_threads", "counter_wakes", "progress_without_calls", "lossy_wire")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ni")


@pytest.fixture(scope="session")
def driver(compiler: Compiler, folder: Path) -> Callable[[str], Path]:
    """The driver program under a sanitizer, compiled once."""
    flags = {"address": ADDRESS, "thread": THREAD}
    return cache(lambda name: compile_driver(compiler, folder / name, flags[name]))


def compile_driver(compiler: Compiler, path: Path, flags: Sequence[str]) -> Path:
    sources = [*sorted(HERE.glob("*.c")), *sorted(NI.glob("*.c"))]
    # As the library is compiled for the other suites, whose objects these are.
    return compiler(path, sources, [*flags, "-fPIC", "-fvisibility=hidden"])


def check_case(program: Path, case: str) -> None:
    done = subprocess.run(
        [str(program), case], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("case", CASES)
def test_ni(driver: Callable[[str], Path], case: str) -> None:
    check_case(driver("address"), case)


@pytest.mark.parametrize("case", THREADED)
def test_threads_are_clean(driver: Callable[[str], Path], case: str) -> None:
    check_case(driver("thread"), case)


def test_the_library_exports_the_specification_and_its_own_names(folder: Path) -> None:
    """The library exports no other name that could clash with one of the process."""
    target = folder / "libsoftni.so"
    flags = ["-std=c11", "-D_GNU_SOURCE", f"-I{ROOT}", "-shared", "-fPIC", "-fvisibility=hidden"]
    subprocess.run(["gcc", *flags, "-o", target, *sorted(NI.glob("*.c"))], check=True)
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", target], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in listed.splitlines()}
    assert all(name.startswith(("Ptl", "softni_")) for name in names), names
    assert {"PtlInit", "PtlMEAppend", "PtlPut", "softni_fault_set"} <= names
