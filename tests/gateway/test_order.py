"""Packets are delivered in order for any first number; a program in C under AddressSanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiler import ADDRESS, Compiler

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def driver(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiler(tmp_path_factory.mktemp("order") / "order", [HERE / "order.c"], ADDRESS)


@pytest.mark.parametrize("first", [0, (1 << 32) - 700, (1 << 31) - 300])
@pytest.mark.parametrize("tokens", [2, 100, 1000, 1024, 4096])
def test_packets_are_put_in_order(driver: Path, tokens: int, first: int) -> None:
    command = [str(driver), str(tokens), str(first), "3000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
