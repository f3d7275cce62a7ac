"""The programs of examples/parcels."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import run_file

PROGRAMS = Path(__file__).parents[2] / "examples/parcels"


@pytest.mark.parametrize("variables", [{"PSP_TCP": "0"}, {"PSP_SHM": "0"}], ids=["shm", "tcp"])
@pytest.mark.parametrize(
    ("name", "argument", "last"),
    [
        ("montecarlo.py", "200000", "within four standard errors: True"),
        ("images.py", "12", "12 of 12 images have the right number of discs"),
    ],
)
def test_it_runs(name, argument, last, variables):
    assert run_file(3, PROGRAMS / name, argument, **variables)[-1] == last
