"""Packets are delivered in order for any first number; a program in C under AddressSanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("order") / "order"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-O1", f"-I{ROOT}"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", *flags, *sanitizers, "-o", str(made), str(HERE / "order.c")], check=True)
    return made


@pytest.mark.parametrize("first", [0, (1 << 32) - 700, (1 << 31) - 300])
@pytest.mark.parametrize("tokens", [2, 100, 1000, 1024, 4096])
def test_packets_are_put_in_order(driver: Path, tokens: int, first: int) -> None:
    command = [str(driver), str(tokens), str(first), "3000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
