"""Runs the tests of the contract's kit: programs in C under sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiler import ADDRESS, Compiler

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.c"))
ROUNDS = 2000


@pytest.mark.parametrize("name", NAMES)
def test_kit(compiler: Compiler, name: str, tmp_path: Path) -> None:
    program = compiler(tmp_path / name, [HERE / f"{name}.c"], ADDRESS)
    for seed in range(3):
        done = subprocess.run(
            [program, str(seed), str(ROUNDS)],
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, f"seed {seed}, {ROUNDS} rounds\n{done.stdout}{done.stderr}"
