"""Runs the C program native.c: the distance of the cores, and the machine's limits."""

from __future__ import annotations

import gc
import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pscompy.cli.measure import LATENCY, STREAM, Job

FOLDER = Path(__file__).parents[1] / ".venv"
_SECONDS = 60.0
_BLOCKING = ("unix", "inet")  # tests whose figure is the way of one message


class NotMeasured(Exception):
    """A library or a limit cannot be measured; the text is the reason."""


@cache
def cores() -> tuple[int, int]:
    """The cores of the two processes of a pair; equal if only one core is available."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[1 % len(allowed)]


def pin(rank: int) -> None:
    """Bind this process to the core of its rank."""
    os.sched_setaffinity(0, {cores()[rank]})


def resident() -> int:
    """The bytes of this process that are in memory."""
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))


def run(test: str, size: int = 0, count: int = 0) -> list[float]:
    """Run a test of the program and return the numbers that it prints."""
    first, second = cores()
    arguments = [test, str(first), str(second), str(size), str(count)]
    ended = subprocess.run(
        [built("native.c"), *arguments], capture_output=True, text=True, timeout=_SECONDS
    )
    if ended.returncode:
        raise NotMeasured(f"native {test}: {ended.stderr.strip()}")
    return [float(word) for word in ended.stdout.split()]


@cache
def built(name: str, suffix: str = "", *options: str) -> Path:
    """Compile a file of C beside this one, if its program is missing or older, and return the
    program: `.venv/native` is made of native.c."""
    source = Path(__file__).with_name(name)
    program = (FOLDER / name).with_suffix(suffix)
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        FOLDER.mkdir(exist_ok=True)
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", *options]
        subprocess.run([os.environ.get("CC", "gcc"), *flags, "-o", program, source], check=True)
    return program


@dataclass(frozen=True)
class Bracket:
    """A measurement before and after a launch: the time of a cache line one way, in ns."""

    ns: float
    slow_ns: float  # the same for the slowest tenth

    @classmethod
    def take(cls) -> Bracket:
        if len(set(cores())) == 1:
            return cls(0.0, 0.0)
        return cls(*run("line"))


class Limit:
    """A test of the program, measured like a pair of processes."""

    name = "limit"
    tests: tuple[str, ...] = (LATENCY, STREAM)

    def __init__(self, test: str) -> None:
        self._test = test

    def run(self, job: Job) -> float:
        taken = run(self._test, job.size, job.messages if self._test == "copy" else job.count)[0]
        return taken / job.count if self._test in _BLOCKING else taken
