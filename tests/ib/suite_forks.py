"""Forks of processes whose memory is registered with an adapter; run inside the guest (see
test_suites.py), whose kernel copies registered pages at a fork.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pscompy import World
from pscompy.control.explain import AT_A_FORK
from tests.forking import WAYS, fork_amid_transfers, receive_and_fork
from tests.program import program

TIMES = 8
LENGTH = 1 << 16  # numbers of an array
# The answer of the library of verbs where the kernel copies nothing (IBV_FORK_DISABLED).
OLD_KERNEL = "int ibv_is_fork_initialized(void) { return 0; }\n"


def ranks(text: str, **variables: str) -> list[str]:
    """The lines that two ranks over ib print, sorted."""
    settings = {"PSP_SHM": "0", "PSP_TCP": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "pscompy", "run", "-n", "2", "--", sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, **settings, **variables},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return sorted(done.stdout.splitlines())


def test_received_arrays_are_private() -> None:
    assert ranks(program(receive_and_fork)) == sorted(WAYS)


def test_forks_amid_messages() -> None:
    """The guest has one processor, so that no program sees a part of a message."""
    printed = ranks(program(fork_amid_transfers, LENGTH, ["get", "put"], parts=False))
    assert printed == ["get ib"] * 2 + ["put ib"] * 2


# ---- a kernel that copies no registered pages ------------------------------------


def pass_on(times: int, length: int) -> None:
    """Send what was received, again and again; print what that registered."""
    with World() as world:
        peer = 1 - world.rank
        got: Any = world.empty(length)
        for _ in range(times):
            request = world.isend(got, peer)
            got = world.recv_array(float, length, source=peer, timeout=60)
            request.wait(60)
        made = world[peer].explain()
        told = [line.strip() for line in str(made).splitlines() if "at a fork" in line]
        print(json.dumps([world[peer].stats["registrations"], world.stats["ib_kept"], told]))


def passed_on(**variables: str) -> list[Any]:
    """The same of both ranks: how many registrations were made for one message, how many are
    kept, and what explain() says of them."""
    first, second = map(json.loads, ranks(program(pass_on, TIMES, LENGTH), **variables))
    assert first == second
    return list(first)


def test_received_memory_is_registered_once() -> None:
    assert passed_on() == [0, 0, []]


@pytest.fixture
def old_kernel(tmp_path: Path) -> str:
    """A library that stands before that of verbs."""
    source, made = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text(OLD_KERNEL)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    return str(made)


def test_received_memory_is_registered_for_each_message_without_copies(old_kernel: str) -> None:
    registrations, kept, told = passed_on(LD_PRELOAD=old_kernel)
    assert registrations >= TIMES
    assert kept == 0
    assert told == [f"memory of received arrays: {AT_A_FORK}"]
