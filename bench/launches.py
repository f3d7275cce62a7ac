"""The launches of a group of bench/cases: two processes that run jobs, or ranks that run a case."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import peers
from bench.native import Limit, NotMeasured
from bench.rank import JOBS
from bench.rows import MPI, OWN, Cell, Figures, Group, Launch
from pscompy.cli.contender import Contender
from pscompy.cli.measure import Job
from pscompy.cli.sampling import Pair, Sample, sample

_SECONDS = 60.0
_RANK = ("-m", "bench.rank")

Start = Callable[[], peers.Start]
Make = Callable[[], AbstractContextManager[Pair]]
Measure = Callable[[Pair, float], Figures]


# ---- jobs between two processes -----------------------------------------------------------------


def one_way_us(taken: Sample) -> float:
    return taken.one_way_us


def gigabytes(taken: Sample) -> float:
    return taken.megabytes_per_second / 1e3


def raw_us(taken: Sample) -> float:
    """Of a test that is run once and tells a time by itself."""
    return taken.rounds[0] * 1e6


@dataclass(frozen=True)
class Test:
    """A job, and the figure of a cell, computed from its sample. With `once` the job is run as it
    is, without calibration."""

    cell: Cell
    job: Job
    figure: Callable[[Sample], float] = one_way_us
    once: bool = False

    def measure(self, pair: Pair, seconds: float) -> float:
        if self.once:
            return self.figure(Sample(self.job, (pair.run(self.job),)))
        return self.figure(sample([pair], self.job, seconds)[pair.name])


def between(make: Make, what: Sequence[Test] | Measure) -> Launch:
    """Start two processes, and measure the tests or by the function."""

    def launch(seconds: float) -> Figures:
        with make() as pair:
            if callable(what):
                return what(pair, seconds)
            return {test.cell.name: test.measure(pair, seconds) for test in what}

    return launch


def own(transport: str, way: str = "", **variables: str) -> Make:
    """pscompy, called in a way of bench/libraries.py, with PSP_ variables."""
    start = partial(peers.pscompy, 2, transport, **variables)
    return partial(launched, OWN, f"pscompy-{way or transport}", start)


def mpi(library: str = "mpi4py", transport: str = "shm") -> dict[str, Make]:
    """mpi4py over each MPI."""
    return {
        peer: partial(launched, peer, library, partial(peers.mpi, peer, 2, transport))
        for peer in MPI
    }


def plain(library: str, start: Start = peers.python) -> Make:
    """Two processes that are started without a launcher."""

    def make() -> Contender:
        started = start()
        end = [*started.command, *_RANK, JOBS, library]

        def commands(folder: Path) -> list[list[str]]:
            return [[*end, str(folder), role] for role in "01"]

        return Contender(library, commands, started.environment)

    return make


def ucxx(transport: str) -> Make:
    return plain("ucxx", partial(peers.ucxx, transport))


def limit(program: str) -> Make:
    return lambda: nullcontext(Limit(program))


def launched(name: str, library: str, start: Start) -> Contender:
    started = start()
    end = [*started.command, *_RANK, JOBS, library]
    return Contender(name, lambda folder: [[*end, str(folder)]], started.environment)


def against_mpi(transport: str, way: str = "", library: str = "mpi4py") -> dict[str, Make]:
    return {OWN: own(transport, way), **mpi(library, transport)}


def each(makes: Mapping[str, Make], what: Sequence[Test] | Measure) -> dict[str, Launch]:
    return {name: between(make, what) for name, make in makes.items()}


def cells(tests: Sequence[Test]) -> tuple[Cell, ...]:
    return tuple(test.cell for test in tests)


def of_tests(name: str, title: str, tests: Sequence[Test], makes: Mapping[str, Make]) -> Group:
    """A group of which each library makes all tests."""
    return Group(name, title, cells(tests), each(makes, tests))


# ---- cases of ranks -----------------------------------------------------------------------------


def ranks(start: Start, library: str, case: Callable[..., Any], *arguments: object) -> Launch:
    """Run a case on ranks. A figure that several ranks have is the greatest of them."""
    words = f"{case.__module__}:{case.__qualname__}", library
    more = (*map(str, arguments),)

    def launch(seconds: float) -> Figures:
        told = run(start(), lambda folder: [*_RANK, *words, folder, "", str(seconds), *more])
        figures: Figures = {}
        for name, figure in (it for rank in told for it in rank.items()):
            figures[name] = max(figure, figures.get(name, figure))
        return figures

    return launch


def ranks_against_mpi(number: int, case: Callable[..., Any]) -> dict[str, Launch]:
    launches = {OWN: ranks(partial(peers.pscompy, number), OWN, case)}
    for peer in MPI:
        launches[peer] = ranks(partial(peers.mpi, peer, number), "mpi4py", case)
    return launches


def run(start: peers.Start, command: Callable[[str], Iterable[str]]) -> list[Figures]:
    """Run ranks and return what each has written as JSON into a file in their folder."""
    with tempfile.TemporaryDirectory(prefix="pscompy-bench-") as folder:
        words = [*start.command, *command(folder)]
        try:
            ended = subprocess.run(
                words, stdout=sys.stderr, env=start.environment, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"it has not ended after {_SECONDS:.0f} s") from None
        if ended.returncode:
            raise NotMeasured(f"it has ended with {ended.returncode}, see above")
        return [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]


# ---- both ---------------------------------------------------------------------------------------


def prepared(prepare: Callable[[], object], launch: Launch) -> Launch:
    """Prepare each launch; what `prepare` raises leaves the library out."""

    def both(seconds: float) -> Figures:
        prepare()
        return launch(seconds)

    return both


def together(*launches: Launch) -> Launch:
    """One launch after the other, with the figures of all."""

    def launch(seconds: float) -> Figures:
        return {name: it for each in launches for name, it in each(seconds).items()}

    return launch


def with_ratios(launch: Launch, ratios: dict[str, tuple[str, str]]) -> Launch:
    """Figures that divide one figure by another, where the launch has both."""

    def divided(seconds: float) -> Figures:
        figures = launch(seconds)
        for name, (one, other) in ratios.items():
            if one in figures and other in figures:
                figures[name] = figures[one] / figures[other]
        return figures

    return divided
