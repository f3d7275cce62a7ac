"""Memory while messages of all sizes pass a gateway: it reaches a plateau."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from tests.gateway.gate import Gate
from tests.gateway.namespaces import Machine

SOAK = Path(__file__).with_name("soak.py")
ENDLESS = 1_000_000  # rounds
RANKS = 3  # in each module
SAMPLES = 60

# Seconds that the test takes; 600 show a slow leak.
SECONDS = float(os.environ.get("PSCOMPY_TEST_SOAK_SECONDS", "20"))


def parents() -> dict[int, int]:
    """The parent of each process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # the process has ended
            continue
    return found


def descendants(pid: int) -> list[int]:
    """The process and all that it has started, directly or not."""
    found, known = [pid], parents()
    for one in found:
        found += [child for child, parent in known.items() if parent == one]
    return found


def private_bytes(pid: int) -> int:
    """The memory that only this process uses."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def test_memory_reaches_a_plateau(machine: Machine, gate: Gate) -> None:
    machine.start_gateway(1)
    launchers = [machine.ranks(it, RANKS, SOAK, ENDLESS, ENDLESS, gate.path) for it in (2, 1)]
    gate.let_through(2 * RANKS)
    watched = [machine.running[1].pid, *(it.pid for it in launchers)]
    samples: dict[int, list[int]] = {}
    for _ in range(SAMPLES):
        time.sleep(SECONDS / SAMPLES)
        assert [it.poll() for it in launchers] == [None, None]
        for pid in (one for root in watched for one in descendants(root)):
            samples.setdefault(pid, []).append(private_bytes(pid))
    for pid, sizes in samples.items():
        print(pid, *(f"{size / 1e6:.1f}" for size in sizes))
    for pid, sizes in samples.items():
        early, late = sizes[SAMPLES // 4 : SAMPLES // 2], sizes[-SAMPLES // 4 :]
        grown = statistics.median(late) - statistics.median(early)
        assert grown < 2_000_000 + 0.1 * statistics.median(early), (pid, sizes)
