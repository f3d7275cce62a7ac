"""Operations at which endpoints break: each suite shows some, all suites together show all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from pscompy.testing.fault_cases import OPERATIONS

SUITES = Path(__file__).parents[1] / "conformance"
CASE = re.compile(r"::(\w+)::test_a_death_at_any_operation_is_a_lost_peer\[(\d+)\]")


def collected(**environ: str) -> dict[str, list[int]]:
    """The operations of each suite."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    others = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    others.pop("PSCOMPY_TEST_OPERATIONS", None)
    done = subprocess.run(
        [*command, SUITES], capture_output=True, text=True, check=True, env={**others, **environ}
    )
    suites: dict[str, list[int]] = {}
    for suite, operation in CASE.findall(done.stdout):
        suites.setdefault(suite, []).append(int(operation))
    return suites


def test_all_suites_together_have_all_operations() -> None:
    suites = collected()
    assert {len(operations) for operations in suites.values()} == {2}
    assert {it for operations in suites.values() for it in operations} == set(OPERATIONS)


def test_the_variable_brings_all_to_each() -> None:
    suites = collected(PSCOMPY_TEST_OPERATIONS="all")
    assert {tuple(operations) for operations in suites.values()} == {OPERATIONS}
