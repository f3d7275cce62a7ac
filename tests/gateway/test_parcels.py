"""Objects, and the executor of examples/parcels, between modules that have no route to each
other.
"""

from __future__ import annotations

import pytest
from namespaces import ROOT, finished


@pytest.mark.parametrize(
    ("name", "argument", "last"),
    [
        ("montecarlo.py", 200_000, "within four standard errors: True"),
        ("images.py", 12, "12 of 12 images have the right number of discs"),
    ],
)
def test_an_example_on_two_modules(machine, name, argument, last):
    machine.start_gateway(1)
    program = ROOT / "examples/parcels" / name
    second = machine.ranks(2, 2, program, argument)
    out, _ = finished(machine.ranks(1, 2, program, argument))
    finished(second)
    assert out.splitlines()[-1] == last
    assert machine.status(1)["counters"]["bytes"] > 0
