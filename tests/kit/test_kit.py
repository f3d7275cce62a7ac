"""Runs the tests of the contract's kit: programs in C under sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NAMES = sorted(path.stem for path in HERE.glob("*.c"))
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-O1"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
ROUNDS = 2000


@pytest.mark.parametrize("name", NAMES)
def test_kit(name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    command = ["gcc", *FLAGS, *SANITIZE, f"-I{ROOT}", "-o", str(program)]
    subprocess.run([*command, str(HERE / f"{name}.c")], check=True)
    for seed in range(3):
        done = subprocess.run(
            [program, str(seed), str(ROUNDS)],
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, f"seed {seed}, {ROUNDS} rounds\n{done.stdout}{done.stderr}"
