"""Tests of messages, the conformance kit, jobs and gateways beside a storm of signals: each thread
of each process has a timer of 100 us, whose handler counts (storm/sitecustomize.py).

PSCOMPY_TEST_ALL=1 takes all tests that hold beside a storm, instead of some of each kind.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.ib.booting import ROOT, missing, run_suites
from tests.left_out import ALL
from tests.storm import STORM

KIT = "tests/conformance/test_conformance.py"
PORTALS = "tests/portals/test_conformance.py"
# The tests of the kit that show long messages, many at once, and processes that sleep.
SOME = "both_directions or however_slowly or who_sleeps or large"


class Part(NamedTuple):
    """The tests that `some` selects of `files`; with PSCOMPY_TEST_ALL=1, all of `more` or
    `files`. `without` selects tests that wait until a thread sleeps or count its wake-ups."""

    files: str
    some: str
    more: str = ""
    without: str = "nothing_to_leave_out"


PARTS = {
    "shm": Part(f"{KIT}::TestShm", SOME, KIT, "Tcp or Python"),
    "tcp": Part(f"{KIT}::TestTcp", SOME, KIT, "Shm or Python"),
    "python": Part(f"{KIT}::TestPython", "both_directions", KIT, "Shm or Tcp"),
    "portals": Part(f"{PORTALS}::TestPortals", SOME, PORTALS),
    "messages": Part(
        "tests/messages/test_send_recv.py tests/messages/test_requests.py"
        " tests/messages/test_aio.py",
        "test_",
        "tests/messages",
        "sleeps or interrupts or a_signal_in or closing_wakes",
    ),
    "launcher": Part(
        "tests/launch/test_world.py tests/launch/test_ends.py tests/launch/test_store.py",
        "reach_all_ranks or all_call_at_once",
        without="sleeps",
    ),
    "gateway": Part("tests/gateway/test_fabrics.py tests/gateway/test_world.py", "only_way"),
}


def chosen(part: Part) -> list[str]:
    files = (part.more or part.files) if ALL else part.files
    which = "test_" if ALL else part.some
    return [*files.split(), "-k", f"({which}) and not ({part.without})"]


def signals(counts: Path) -> int:
    return sum(map(int, counts.read_text().split()))


def messages(log: Path) -> int:
    """The number of sent messages of the sessions that have logged their counters."""
    lines = log.read_text() if log.exists() else ""
    return sum(map(int, re.findall(r"\bsent_messages (\d+)", lines)))


@pytest.mark.timeout(3000 if ALL else 600)
@pytest.mark.parametrize("name", PARTS)
def test_beside_a_storm_of_signals(name: str, tmp_path: Path) -> None:
    counts, log = tmp_path / "signals", tmp_path / "log"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--numprocesses=0"]
    environ = {"PSCOMPY_TEST_STORM": str(counts), "PYTHONPATH": str(STORM)}
    environ |= {"PSP_DEBUG_STATS": "1", "PSP_DEBUG_OUT": str(log)}
    done = subprocess.run(
        [*command, *chosen(PARTS[name])],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    print(done.stdout.splitlines()[-1], f"{signals(counts)} signals, {messages(log)} messages")
    assert signals(counts) > 100


@pytest.mark.skipif(bool(missing()), reason=str(missing()))
@pytest.mark.timeout(3000)
def test_ib_beside_a_storm_of_signals(tmp_path: Path) -> None:
    """In a guest, where a signal costs as much as a system call, a timer of 1 ms."""
    counts, log = tmp_path / "signals", tmp_path / "log"
    environ = {"PSCOMPY_TEST_STORM": str(counts), "PYTHONPATH": str(STORM)}
    environ |= {"PSP_DEBUG_STATS": "1", "PSP_DEBUG_OUT": str(log)}
    environ |= {"PSCOMPY_TEST_STORM_US": "1000"}
    environ |= {} if ALL else {"PYTEST_ADDOPTS": f"-k 'SharedQueue and ({SOME})'"}
    assert run_suites("suite_conformance.py", **environ) == 0
    print(f"{signals(counts)} signals, {messages(log)} messages")
    assert signals(counts) > 100
