"""The bridge's C half against the contract, with a fabric in memory and a pump in C."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.compiler import ADDRESS, THREAD, Compiler, cases

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONTRACT = HERE.parent / "contract"
CASES = (
    "connect.c",
    "exchange.c",
    "mapping.c",
    "memory.c",
    "messages.c",
    "tagged.c",
    "wakeup.c",
)
SOURCES = [
    HERE / "memory_pump.c",
    *(CONTRACT / name for name in ("driver.c", "harness.c", "upcalls.c", *CASES)),
    *(path for path in (ROOT / "pscompy/transport/python").glob("*.c") if path.name != "_native.c"),
]
SANITIZERS = {"address": ADDRESS, "thread": THREAD}
SKIPPED = 77

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or not (ROOT / "pscompy/transport/python/ep.c").exists(),
    reason="no compiler, or pscompy is installed without its sources",
)


@pytest.fixture(scope="session")
def drivers(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bridge")
    return {it: compile_driver(compiler, folder / it, SANITIZERS[it]) for it in SANITIZERS}


def compile_driver(compiler: Compiler, path: Path, flags: Sequence[str]) -> Path:
    return compiler(path, SOURCES, flags, ["-DTRANSPORT=bridge_transport"])


def case_names() -> list[str]:
    """The names of the cases, read from the sources, because nothing is built yet."""
    return cases(SOURCES)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("case", case_names())
def test_contract(drivers: dict[str, Path], sanitizer: str, case: str) -> None:
    done = subprocess.run([drivers[sanitizer], case], capture_output=True, text=True, timeout=250)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip().splitlines()[-1].removeprefix("skipped: "))
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
