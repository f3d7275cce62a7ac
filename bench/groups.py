"""The rows of the table, in groups that are measured by the same launches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import peers
from bench.native import Limit
from pscompy.cli.contenders import Contender
from pscompy.cli.measure import LATENCY, STREAM, Job
from pscompy.cli.sampling import Sample, sample

K, M = 1 << 10, 1 << 20
MPI = ("mpich", "openmpi")
OWN = "pscompy"

# Size -> the bar.
SHM_LATENCY = {8: 0.4, K: 0.5, 4 * K: 0.5, 8 * K: 0.5, 64 * K: 0.7, M: 1.05, 4 * M: 1.05}
TCP_LATENCY = {8: 0.8, K: 0.8, 4 * K: 0.8, 8 * K: 0.8, 64 * K: 0.8, M: 1.0, 4 * M: 1.0}

# Cell -> figure, of one launch.
Figures = dict[str, float]
Launch = Callable[[float], Figures]  # gets the seconds for each cell


@dataclass(frozen=True)
class Cell:
    """A figure, and what it is held against: `bar` times the best of `against`.

    `size` are the bytes that the plots draw it at.
    """

    name: str
    unit: str
    bar: float | None = None
    against: tuple[str, ...] = MPI
    size: int | None = None

    @property
    def less_is_better(self) -> bool:
        return self.unit in ("us", "ms", "MiB", "%")


@dataclass(frozen=True)
class Group:
    """What is measured together; libraries that are not held against are shown beside it."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    launches: dict[str, Launch]


def short(size: int) -> str:
    for unit, shift in (("M", 20), ("k", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}iB"
    return f"{size} B"


# ---- pairs of processes -------------------------------------------------------------------------


@dataclass(frozen=True)
class Test:
    """A job, and the figure that a cell wants of it."""

    cell: Cell
    job: Job
    figure: Callable[[Sample], float]


def _pair(make: Callable[[], Contender], tests: list[Test]) -> Launch:
    def launch(seconds: float) -> Figures:
        with make() as contender:
            return {
                test.cell.name: test.figure(_sample(contender, test.job, seconds)) for test in tests
            }

    return launch


def _limit(program: str, tests: list[Test]) -> Launch:
    def launch(seconds: float) -> Figures:
        limit = Limit(program)
        return {test.cell.name: test.figure(_sample(limit, test.job, seconds)) for test in tests}

    return launch


def _sample(pair: Contender | Limit, job: Job, seconds: float) -> Sample:
    return sample([pair], job, seconds)[pair.name]


def _contender(name: str, library: str, start: Callable[[], peers.Start]) -> Contender:
    started = start()
    end = [*started.command, "-m", "bench.end", library]
    return Contender(name, lambda folder: [[*end, str(folder)]], started.environment)


def _sockets() -> Contender:
    end = [sys.executable, "-m", "bench.end", "sockets"]

    def commands(folder: Path) -> list[list[str]]:
        return [[*end, str(folder), role] for role in "01"]

    return Contender("sockets", commands, peers.variables())


def _libraries(transport: str, tests: list[Test]) -> dict[str, Launch]:
    def own() -> Contender:
        return _contender(OWN, f"pscompy-{transport}", lambda: peers.pscompy(2, transport))

    def mpi(peer: str) -> Callable[[], Contender]:
        return lambda: _contender(peer, "mpi4py", lambda: peers.mpi(peer, 2, transport))

    launches = {OWN: _pair(own, tests)}
    launches |= {peer: _pair(mpi(peer), tests) for peer in MPI}
    if transport == "tcp":
        launches["sockets"] = _pair(_sockets, tests)
    return launches


# ---- the groups ---------------------------------------------------------------------------------


def _latency(transport: str, bars: dict[int, float]) -> Group:
    tests = [
        Test(
            Cell(f"{transport} one way, {short(size)}", "us", bar, size=size),
            Job(LATENCY, size, 1, 1),
            lambda taken: taken.one_way_us,
        )
        for size, bar in bars.items()
    ]
    launches = _libraries(transport, tests)
    launches["limit"] = _limit(transport, tests)
    cells = tuple(test.cell for test in tests)
    return Group(f"{transport}-latency", f"{transport}: one-way latency", cells, launches)


def _bandwidth(transport: str, bars: dict[int, float]) -> Group:
    against = (*MPI, "sockets") if transport == "tcp" else MPI
    tests = [
        Test(
            Cell(f"{transport} bandwidth, {short(size)}", "GB/s", bar, against, size),
            Job(STREAM, size, 1, 64 if size < 64 * M else 8),
            lambda taken: taken.megabytes_per_second / 1e3,
        )
        for size, bar in bars.items()
    ]
    launches = _libraries(transport, tests)
    if transport == "shm":
        launches["limit"] = _limit("copy", tests)
    cells = tuple(test.cell for test in tests)
    return Group(f"{transport}-bandwidth", f"{transport}: windowed bandwidth", cells, launches)


def _rate() -> Group:
    cell = Cell("shm messages of 8 B", "M/s", 2.0, size=8)
    job = Job(STREAM, 8, 1, 64)
    tests = [Test(cell, job, lambda taken: taken.messages_per_second / 1e6)]
    return Group("shm-rate", "shm: message rate", (cell,), _libraries("shm", tests))


def groups() -> dict[str, Group]:
    made = (
        _latency("shm", SHM_LATENCY),
        _bandwidth("shm", {64 * K: 1.5, M: 1.0, 4 * M: 1.0, 64 * M: 0.95}),
        _rate(),
        _latency("tcp", TCP_LATENCY),
        _bandwidth("tcp", {64 * K: 0.95, M: 0.95, 4 * M: 0.95, 64 * M: 0.95}),
    )
    return {group.name: group for group in made}
