"""What several suites need that run inside the guest."""

from __future__ import annotations

import pytest

from tests.ib.devices import ROOT, make_device


@pytest.fixture(scope="session")
def second_device() -> None:
    """rxe1, which stays until the guest is gone."""
    if not (ROOT / "rxe1").exists():
        make_device(1)
