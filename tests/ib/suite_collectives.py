"""Collective calls, drawn at random, over ib alone; run inside the guest (see test_suites.py)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.program import program


def calls_collectives(seed: int, batches: int) -> None:
    from tests.launch.collective_ranks import run

    run(seed, batches)
    raise SystemExit(0)


@pytest.mark.parametrize("ranks", [2, 3])
def test_results_are_those_of_numpy(ranks: int) -> None:
    text = program(calls_collectives, 60 + ranks, 12)
    launcher = [sys.executable, "-m", "pscompy", "run", "-n", str(ranks), "--"]
    done = subprocess.run(
        [*launcher, sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PSP_SHM": "0", "PSP_TCP": "0"},
    )
    assert done.stdout.splitlines() == ["ok"] * ranks, done.stderr
