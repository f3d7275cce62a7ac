"""Suites of ib with sessions and whole programs, which share a guest; those of the conformance kit
and those that change their guest have others.
"""

from __future__ import annotations

from tests.ib.booting import HERE, IN_A_GUEST, run_suites

pytestmark = IN_A_GUEST
ELSEWHERE = {"suite_conformance.py", "suite_gateway.py", "suite_removal.py"}


def test_suites() -> None:
    assert run_suites(*sorted({path.name for path in HERE.glob("suite_*.py")} - ELSEWHERE)) == 0
