"""The cache of registrations saves registrations and never returns a stale one; run inside the
guest as root, because only root can read the frames of pages (see test_guest.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import program

HERE = Path(__file__).parent
COUNTS = re.compile(
    r"ib: (\d+) registrations, (\d+) found again, (\d+) no longer right, (\d+) not kept"
)
TIMES = 20


def send_one_buffer(times: int, pool: bool) -> None:
    import numpy as np

    from pscompy import World

    with World() as world:
        array = world.empty(1 << 19, np.uint8) if pool else np.ones(1 << 19, "u1")
        for _ in range(times):
            if world.rank == 0:
                world.send(array, dest=1)
            else:
                world.recv(array, source=0)


def sends(memory: str) -> tuple[str, str]:
    """The arguments of a Python that sends a buffer TIMES times, from the pool or of its own."""
    return "-c", program(send_one_buffer, TIMES, memory == "pool")


def run(*program: str, **variables: str) -> tuple[str, list[tuple[int, ...]]]:
    """Run two ranks over ib; returns their output, and the counts of each."""
    settings = {"PSP_SHM": "0", "PSP_TCP": "0", "PSP_DEBUG": "4", **variables}
    done = subprocess.run(
        [sys.executable, "-m", "pscompy", "run", "-n", "2", *program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [tuple(map(int, found)) for found in COUNTS.findall(done.stderr)]
    assert len(counts) == 2, done.stderr
    return done.stdout, counts


@pytest.mark.parametrize("scheme", ["put", "get"])
@pytest.mark.parametrize("memory", ["own", "pool"])
def test_the_second_send_of_a_buffer_registers_nothing(memory: str, scheme: str) -> None:
    _, counts = run(*sends(memory), PSP_RNDV_SCHEME=scheme)
    for registered, _, stale, not_kept in counts:
        assert (registered, stale, not_kept) == (1, 0, 0)


def test_without_a_cache_each_message_registers() -> None:
    _, counts = run(*sends("own"), PSP_IB_MCACHE_SIZE="0")
    for registered, found, _, not_kept in counts:
        assert (registered, found, not_kept) == (TIMES, 0, TIMES)


def test_no_more_is_kept_than_allowed() -> None:
    _, counts = run(*sends("own"), PSP_IB_MCACHE_BYTES="256k")
    for registered, found, _, not_kept in counts:
        assert (registered, found, not_kept) == (TIMES, 0, TIMES)


@pytest.mark.parametrize("memory", ["own", "pool"])
def test_who_is_told_no_frames_keeps_the_pool_only(memory: str) -> None:
    setpriv = ["--", "setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable]
    _, counts = run(*setpriv, *sends(memory))
    for registered, _, _, not_kept in counts:
        assert (registered, not_kept) == ((1, 0) if memory == "pool" else (TIMES, TIMES))


@pytest.mark.parametrize("scheme", ["put", "get"])
def test_memory_that_is_mapped_anew(scheme: str) -> None:
    printed, counts = run(str(HERE / "remap.py"), PSP_RNDV_SCHEME=scheme)
    remapped = [int(line.split()[1]) for line in printed.splitlines() if "remapped" in line]
    assert len(remapped) == 2
    for times, (_, found, stale, _) in zip(sorted(remapped), sorted(counts), strict=True):
        assert times >= 5
        assert found > 0
        assert stale > 0
