"""Memory while messages of all sizes pass a gateway: it reaches a plateau, which is drawn."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from subprocess import Popen

import pytest

from pscompy.cli import plot
from tests.gateway.gate import Gate
from tests.gateway.namespaces import Machine

SOAK = Path(__file__).with_name("soak.py")
ENDLESS = 1_000_000  # rounds
RANKS = 3  # in each module
SAMPLES = 60  # of each time
TIMES = 3  # a leak grows each time, a late step of warming up does not
IN_FLIGHT = 4_000_000  # bytes: two of the longest messages of soak.py

# Seconds that the test takes if no process grows; 600 show a slow leak.
SECONDS = float(os.environ.get("PSCOMPY_TEST_SOAK_SECONDS", "8"))
# Folder for the samples as plateau.json and plateau.png; none by default.
FOLDER = os.environ.get("PSCOMPY_TEST_SOAK_FOLDER")


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


def grown(sizes: list[int]) -> bool:
    """True if a process has grown from the second quarter of its last samples to the last one."""
    early, late = sizes[-3 * SAMPLES // 4 : -SAMPLES // 2], sizes[-SAMPLES // 4 :]
    # The least of each, because samples may be taken while long messages are in flight. A few
    # samples may all have one.
    allowed = 2_000_000 + 0.1 * min(early) + (IN_FLIGHT if SECONDS < 60 else 0)
    return min(late) - min(early) >= allowed


def keep(folder: Path, samples: dict[str, list[int]], seconds: float) -> None:
    """Write the bytes of each process at each sample, and a plot of them."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"seconds": seconds, "bytes": samples}
    (folder / "plateau.json").write_text(json.dumps(told))
    plot.check()
    lines = {
        name: {round(place * seconds): size / 1e6 for place, size in enumerate(sizes, 1)}
        for name, sizes in samples.items()
    }
    panel = plot.Panel("MB that only this process uses", lines, over="seconds", linear=True)
    plot.draw(folder / "plateau.png", "messages of all sizes through a gateway", [panel])


def test_samples_are_kept_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    keep(tmp_path / "new", {"rank": [5_000_000, 6_000_000]}, 0.6)
    told = json.loads((tmp_path / "new/plateau.json").read_text())
    assert told == {"seconds": 0.6, "bytes": {"rank": [5_000_000, 6_000_000]}}
    assert (tmp_path / "new/plateau.png").read_bytes().startswith(b"\x89PNG")


class Watch:
    """Processes that run all the time, and the memory of each at each sample."""

    def __init__(self, machine: Machine, launchers: list[Popen[str]]) -> None:
        self.roots = dict(
            zip(("gateway", "module 2", "module 1"), [machine.running[1], *launchers], strict=True)
        )
        self.samples: dict[str, list[int]] = {}

    def sample(self) -> None:
        for name, root in self.roots.items():
            assert root.poll() is None, name
            for pid in descendants(root.pid):
                with contextlib.suppress(OSError):  # the process has ended
                    sizes = self.samples.setdefault(f"{name}, process {pid}", [])
                    sizes.append(private_bytes(pid))

    def growing(self) -> set[str]:
        """Sample for some time; returns which processes have grown in it. A process that
        came or went meanwhile has fewer samples, and is not counted."""
        for _ in range(SAMPLES):
            time.sleep(SECONDS / SAMPLES)
            self.sample()
        longest = max(map(len, self.samples.values()))
        lasting = {name for name, sizes in self.samples.items() if len(sizes) == longest}
        assert len(lasting) > 2 * RANKS
        return {name for name in lasting if grown(self.samples[name])}


def test_memory_reaches_a_plateau(machine: Machine, gate: Gate) -> None:
    machine.start_gateway(1)
    launchers = [machine.ranks(it, RANKS, SOAK, ENDLESS, ENDLESS, gate.path) for it in (2, 1)]
    gate.let_through(2 * RANKS)
    watch = Watch(machine, launchers)
    growing = watch.growing()
    for _ in range(TIMES - 1):
        if growing:
            growing &= watch.growing()
    if FOLDER:
        keep(Path(FOLDER), watch.samples, SECONDS / SAMPLES)
    for name, sizes in watch.samples.items():
        print(name, *(f"{size / 1e6:.1f}" for size in sizes))
    assert not growing, {name: watch.samples[name] for name in growing}
