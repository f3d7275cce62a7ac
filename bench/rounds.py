"""Launches libraries in random order, each between two brackets, and decides which launches count.

A bracket measures the distance of the cores.
"""

from __future__ import annotations

import math
import os
import random
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.native import Bracket, NotMeasured, run
from bench.rows import Figures, Group
from pscompy.errors import PscomError

FAR = 2.5  # a longer way of a cache line, in multiples of the shortest one seen, is "far apart"
BUSY = 0.1  # cores used by other processes during a launch above which it does not count
_WAKE_UPS = 100
_TICK = 1 / os.sysconf("SC_CLK_TCK")
_OTHERS_COLUMNS = (0, 1, 2, 7)  # columns of /proc/stat: user, nice, system, stolen


@dataclass(frozen=True)
class Launched:
    """One launch of one library."""

    library: str
    figures: Figures
    line_ns: float  # ns of a cache line one way, the worse of both brackets
    others: float  # cores used by others meanwhile
    seconds: float


@dataclass
class Rounds:
    """All launches of a group; `missing` maps each library that was left out to the reason."""

    launched: list[Launched] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def fault(self, launch: Launched, near_ns: float) -> str:
        """The reason why a launch does not count; empty if it counts."""
        if launch.line_ns > FAR * near_ns:
            return "cores far apart"
        return "machine busy" if launch.others > BUSY else ""

    def counting(self, library: str, near_ns: float) -> int:
        """The number of launches of a library that count."""
        mine = [launch for launch in self.launched if launch.library == library]
        return sum(not self.fault(launch, near_ns) for launch in mine)


class Patience:
    """The seconds that a group may wait for cores that are near each other.

    A hypervisor tends to move cores together that wake each other up, so the wait consists of
    brackets, which do that.
    """

    def __init__(self, near_ns: float, seconds: float) -> None:
        self.near_ns = near_ns
        self._left = seconds

    def bracket(self) -> Bracket:
        """The bracket before a launch."""
        while True:
            bracket = self.take()
            if bracket.ns <= FAR * self.near_ns or self._left <= 0:
                return bracket
            start = time.monotonic()
            run("unix", count=_WAKE_UPS)
            self._left -= time.monotonic() - start

    def take(self) -> Bracket:
        bracket = Bracket.take()
        self.near_ns = min(self.near_ns, bracket.ns)
        return bracket


def measure(
    group: Group, wanted: int, seconds: float, patience: Patience, bound: float = math.inf
) -> Rounds:
    """Run rounds until `wanted` launches of each library count. No round begins after twice as many
    rounds or after `bound` seconds."""
    rounds = Rounds()
    start = time.monotonic()
    for number in range(2 * wanted):
        if number and time.monotonic() - start > bound:
            _progress(f"{group.name}: no more rounds, {bound:.0f} s are over")
            break
        lacking = [
            name
            for name in group.launches
            if name not in rounds.missing and rounds.counting(name, patience.near_ns) < wanted
        ]
        random.shuffle(lacking)
        for library in lacking:
            _progress(f"{group.name}: round {number + 1}, {library}")
            _launch(group, library, seconds, patience, rounds)
    return rounds


def _launch(group: Group, library: str, seconds: float, patience: Patience, rounds: Rounds) -> None:
    before = patience.bracket()
    start, busy, own = time.monotonic(), _busy(), _own()
    try:
        figures = group.launches[library](seconds)
    except (NotMeasured, PscomError, OSError) as error:
        rounds.missing[library] = str(error)
        _progress(f"{group.name}: {library} is left out: {error}")
        return
    taken = time.monotonic() - start
    others = max(0.0, (_busy() - busy) - (_own() - own)) / taken
    after = patience.take()
    line_ns = max(before.ns, after.ns)
    rounds.launched.append(Launched(library, figures, line_ns, others, taken))


def _busy() -> float:
    """The processor seconds that all processes of the machine have used."""
    columns = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(columns[column]) for column in _OTHERS_COLUMNS) * _TICK


def _own() -> float:
    """The processor seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _progress(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)
