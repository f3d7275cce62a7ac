"""The tests that a usual run leaves out (tests/left_out.py), and those that it keeps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from pscompy.testing.fault_cases import OPERATIONS
from tests.left_out import COSTLY, GRIDS

ROOT = Path(__file__).parents[2]
FILES = sorted({name.partition("::")[0] for name in (*GRIDS, *COSTLY)})  # those of the kit, too
CASE = re.compile(r"::(\w+)::test_a_death_at_any_operation_is_a_lost_peer\[(\d+)\]")


@cache
def collected(**environ: str) -> list[str]:
    """The tests that a run of FILES takes."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    others = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    others.pop("PSCOMPY_TEST_ALL", None)
    done = subprocess.run(
        [*command, *FILES],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**others, **environ},
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def operations(**environ: str) -> dict[str, list[int]]:
    """The operations of each suite."""
    suites: dict[str, list[int]] = {}
    for suite, operation in CASE.findall("\n".join(collected(**environ))):
        suites.setdefault(suite, []).append(int(operation))
    return suites


def test_all_suites_together_have_all_operations() -> None:
    suites = operations()
    assert {len(it) for it in suites.values()} == {2}
    assert {it for found in suites.values() for it in found} == set(OPERATIONS)


def test_all_suites_together_have_all_faults() -> None:
    fault = re.compile(r"::(\w+)::test_everything_arrives_however_slowly\[(\w+)\]")
    found = fault.findall("\n".join(collected()))
    every = fault.findall("\n".join(collected(PSCOMPY_TEST_ALL="1")))
    assert {knobs for _, knobs in found} == {knobs for _, knobs in every}
    assert len(every) == 3 * len(found)


def test_the_variable_brings_all_to_each() -> None:
    suites = operations(PSCOMPY_TEST_ALL="1")
    assert {tuple(it) for it in suites.values()} == {OPERATIONS}


def test_every_name_is_that_of_a_test() -> None:
    """A test that is left out and renamed must be renamed in tests/left_out.py, too."""
    every, usual = collected(PSCOMPY_TEST_ALL="1"), collected()
    assert set(every) >= COSTLY
    assert {it.partition("[")[0] for it in every} >= GRIDS.keys()
    assert set(usual) < set(every)
    assert not COSTLY & set(usual)
    assert {it.partition("[")[0] for it in usual} >= GRIDS.keys()


def test_a_grid_keeps_each_value_of_each_parameter() -> None:
    (name,) = (it for it in GRIDS if it.endswith("test_dropped_while_the_message_arrives"))
    every, usual = collected(PSCOMPY_TEST_ALL="1"), collected()

    def words(tests: list[str]) -> set[str]:
        return {word for it in tests if name in it for word in re.split(r"[-\[\]]", it)}

    assert words(usual) == words(every)
    assert len(usual) < len(every)
