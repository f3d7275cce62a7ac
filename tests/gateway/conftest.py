"""Network namespaces with modules that have no route to each other, made anew for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helper modules of these tests

from gate import Gate
from namespaces import Machine, why_no_namespaces


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Two modules and a gateway, or the (modules, gateways) that @pytest.mark.parametrize gives."""
    if reason := why_no_namespaces():
        pytest.skip(reason)
    made = Machine(*getattr(request, "param", (2, 1)))
    try:
        made.open()
        yield made
    finally:
        made.close()


@pytest.fixture
def gate(machine: Machine, tmp_path: Path) -> Iterator[Gate]:
    """A gate where ranks wait until all gateways know them; their programs get its path."""
    made = Gate(machine, tmp_path / "gate")
    try:
        yield made
    finally:
        made.close()
