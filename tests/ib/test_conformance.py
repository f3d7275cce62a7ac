"""The conformance suite over ib, in a guest."""

from __future__ import annotations

from tests.ib.booting import IN_A_GUEST, run_suites

pytestmark = IN_A_GUEST


def test_conformance() -> None:
    assert run_suites("suite_conformance.py") == 0
