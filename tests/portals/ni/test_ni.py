"""The software NI of the portals plug-in: two processes under AddressSanitizer and UBSan; cases
with several threads also under ThreadSanitizer.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NI = ROOT / "pscompy/plugins/portals/softni"
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-O1"]
SANITIZERS = {
    "address": ["-fsanitize=address,undefined"],
    # TSan does not model fences; here they only order flags relative to data.
    "thread": ["-fsanitize=thread", "-Wno-tsan"],
}
CASES = re.findall(r"^CASE\((\w+)\)", (HERE / "cases.inc").read_text(), re.M)
THREADED = ("many_threads", "counter_wakes", "progress_without_calls", "lossy_wire")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ni")


def driver(folder: Path, sanitizer: str) -> Path:
    program = folder / sanitizer
    if not program.exists():
        sources = [*sorted(HERE.glob("*.c")), *sorted(NI.glob("*.c"))]
        flags = [*FLAGS, "-fno-sanitize-recover=all", *SANITIZERS[sanitizer], f"-I{ROOT}"]
        command = ["gcc", *flags, "-pthread", "-o", str(program), *map(str, sources)]
        subprocess.run(command, check=True)
    return program


def check_case(program: Path, case: str) -> None:
    done = subprocess.run(
        [str(program), case], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("case", CASES)
def test_ni(folder: Path, case: str) -> None:
    check_case(driver(folder, "address"), case)


@pytest.mark.parametrize("case", THREADED)
def test_threads_are_clean(folder: Path, case: str) -> None:
    check_case(driver(folder, "thread"), case)


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
