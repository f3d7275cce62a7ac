"""The cache of registrations saves registrations and never returns a stale one; run inside the
guest as root, because only root can read the frames of pages (see test_suites.py).
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
REMAPPED = ("put", "get")  # rendezvous schemes


# Worlds of one job, because a guest takes seconds to start one: the memory that is sent, and the
# variables.
Way = tuple[str, dict[str, str]]
SCHEMES = [(memory, {"RNDV_SCHEME": it}) for memory in ("own", "pool") for it in ("put", "get")]
NOTHING_KEPT: list[Way] = [("own", {"IB_MCACHE_SIZE": "0"}), ("own", {"IB_MCACHE_BYTES": "256k"})]
MEMORIES: list[Way] = [("own", {}), ("pool", {})]


def send_one_buffer(ways: list[Way], times: int) -> None:
    """Send a buffer `times` times in one world after the other."""
    import numpy as np

    from pscompy import World

    for memory, config in ways:
        with World(config=config) as world:
            pool = memory == "pool"
            array = world.empty(1 << 19, np.uint8) if pool else np.ones(1 << 19, "u1")
            for _ in range(times):
                if world.rank == 0:
                    world.send(array, dest=1)
                else:
                    world.recv(array, source=0)


Counts = list[tuple[int, ...]]


def run(folder: Path, *program: str) -> tuple[str, list[Counts]]:
    """Run two ranks over ib; returns their output, and the counts of both in each world."""
    settings = {"PSP_SHM": "0", "PSP_TCP": "0", "PSP_DEBUG": "4", "PSP_DEBUG_OUT": f"{folder}/$$"}
    done = subprocess.run(
        [sys.executable, "-m", "pscompy", "run", "-n", "2", *program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [COUNTS.findall(log.read_text()) for log in folder.iterdir()]
    ranks = [[tuple(map(int, it)) for it in rank] for rank in found if rank]
    assert len(ranks) == 2, done.stderr
    return done.stdout, [list(both) for both in zip(*ranks, strict=True)]


def sent(folder: Path, ways: list[Way], *before: str) -> list[Counts]:
    """The counts of a job with these worlds; `before` stands before its program."""
    _, counts = run(folder, *before, "-c", program(send_one_buffer, ways, TIMES))
    assert len(counts) == len(ways)
    return counts


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> list[Counts]:
    return sent(tmp_path_factory.mktemp("logs"), SCHEMES + NOTHING_KEPT)


@pytest.fixture(scope="module")
def without_frames(tmp_path_factory: pytest.TempPathFactory) -> list[Counts]:
    """The counts of ranks that may not read the frames of pages."""
    setpriv = ["--", "setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable]
    return sent(tmp_path_factory.mktemp("logs"), MEMORIES, *setpriv)


@pytest.mark.parametrize("number", range(len(SCHEMES)), ids=map(str, SCHEMES))
def test_the_second_send_of_a_buffer_registers_nothing(counts: list[Counts], number: int) -> None:
    for registered, _, stale, not_kept in counts[number]:
        assert (registered, stale, not_kept) == (1, 0, 0)


@pytest.mark.parametrize("number", range(len(NOTHING_KEPT)), ids=map(str, NOTHING_KEPT))
def test_without_a_cache_or_room_in_it_each_message_registers(
    counts: list[Counts], number: int
) -> None:
    for registered, found, _, not_kept in counts[len(SCHEMES) + number]:
        assert (registered, found, not_kept) == (TIMES, 0, TIMES)


@pytest.mark.parametrize("number", range(len(MEMORIES)), ids=map(str, MEMORIES))
def test_who_is_told_no_frames_keeps_the_pool_only(
    without_frames: list[Counts], number: int
) -> None:
    for registered, _, _, not_kept in without_frames[number]:
        pool = MEMORIES[number][0] == "pool"
        assert (registered, not_kept) == ((1, 0) if pool else (TIMES, TIMES))


@pytest.fixture(scope="module")
def remapped(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Counts]]:
    return run(tmp_path_factory.mktemp("logs"), str(HERE / "remap.py"), *REMAPPED)


@pytest.mark.parametrize("scheme", REMAPPED)
def test_memory_that_is_mapped_anew(remapped: tuple[str, list[Counts]], scheme: str) -> None:
    printed, counts = remapped
    times = [int(it) for it in re.findall(rf"remapped {scheme} (\d+)", printed)]
    ranks = counts[REMAPPED.index(scheme)]
    for least, (_, found, stale, _) in zip(sorted(times), sorted(ranks), strict=True):
        assert least >= 5
        assert found > 0
        assert stale > 0
