"""mypy infers the result types of receives and requests in a typed program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pscompy

pytest.importorskip("mypy", reason="no mypy: pip install mypy")

PROGRAM = Path(__file__).with_name("typed.py")
WRONG = (
    "print(comm.recv().source)",
    "print(comm.irecv(bytearray(1)).wait().decode())",
    "comm.listen()",
)


def test_a_typed_program(tmp_path: Path) -> None:
    """mypy agrees with every assert_type and reports only the deliberate mistakes."""
    folder = Path(pscompy.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(PROGRAM)],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = PROGRAM.read_text().splitlines()
    found = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert [lines[int(number) - 1].strip() for number in found] == list(WRONG), done.stdout


def test_a_request_takes_a_type_at_run_time() -> None:
    kind = pscompy.Request[bytearray]
    assert kind.__origin__ is pscompy.Request
    assert kind.__args__ == (bytearray,)
    assert pscompy.PersistentRequest[None].__origin__ is pscompy.PersistentRequest
