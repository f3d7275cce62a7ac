"""Fixtures that several suites inside the guest need."""

from __future__ import annotations

import pytest

from tests.ib.devices import ROOT, make_device


@pytest.fixture(scope="session")
def second_device() -> None:
    """Create rxe1, which stays until the guest ends."""
    if not (ROOT / "rxe1").exists():
        make_device(1)
