"""The programs of examples/parcels."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "examples/parcels"


@pytest.mark.parametrize("variables", [{"PSP_TCP": "0"}, {"PSP_SHM": "0"}], ids=["shm", "tcp"])
@pytest.mark.parametrize(
    ("name", "argument", "last"),
    [
        ("montecarlo.py", "200000", "within four standard errors: True"),
        ("images.py", "12", "12 of 12 images have the right number of discs"),
    ],
)
def test_it_runs(run, name, argument, last, variables):
    done = run("-n", 3, PROGRAMS / name, argument, env=variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == last
