"""Groups that are measured between two processes, by the loops of `pscompy perf`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import peers
from bench.halves import ASLEEP, AWAIT, WAKE
from bench.native import Limit, NotMeasured
from bench.rows import MPI, OWN, Cell, Figures, Group, K, Launch, M
from pscompy import Session
from pscompy.cli.contenders import Contender
from pscompy.cli.measure import LATENCY, STREAM, Job
from pscompy.cli.sampling import Pair, Sample, sample
from pscompy.cli.sizes import with_unit

# Size in bytes -> the bar of its cell.
SHM_LATENCY = {8: 0.4, K: 0.5, 4 * K: 0.5, 8 * K: 0.5, 64 * K: 0.7, M: 1.05, 4 * M: 1.05}
TCP_LATENCY = {8: 0.8, K: 0.8, 4 * K: 0.8, 8 * K: 0.8, 64 * K: 0.8, M: 1.0, 4 * M: 1.0}
SHM_BANDWIDTH = {64 * K: 1.5, M: 1.0, 4 * M: 1.0, 64 * M: 0.95}
TCP_BANDWIDTH = {64 * K: 0.95, M: 0.95, 4 * M: 0.95, 64 * M: 0.95}
LENT = {M: 0.15, 4 * M: 0.1}
CHOICE_SIZES = tuple(round(K * 2 ** (power / 2)) for power in range(29))  # to 16 MiB
CHOICE_BAR = 1.1
# The protocols that PSP_<TRANSPORT>_RENDEZVOUS can force.
FORCED = {"eager": "inf", "rendezvous": "1k"}
_WAKE_UPS = 200


@dataclass(frozen=True)
class Test:
    """A job, and the figure of a cell, computed from its sample. With `once` the job is run as it
    is, without calibration."""

    cell: Cell
    job: Job
    figure: Callable[[Sample], float]
    once: bool = False

    def measure(self, pair: Pair, seconds: float) -> float:
        if self.once:
            return self.figure(Sample(self.job, (pair.run(self.job),)))
        return self.figure(sample([pair], self.job, seconds)[pair.name])


def one_way_us(taken: Sample) -> float:
    return taken.one_way_us


def gigabytes(taken: Sample) -> float:
    return taken.megabytes_per_second / 1e3


def _seconds(taken: Sample) -> float:
    return taken.seconds


# ---- how the processes are started --------------------------------------------------------------


def launch(make: Callable[[], Contender], tests: Sequence[Test], seconds: float) -> Figures:
    with make() as contender:
        return {test.cell.name: test.measure(contender, seconds) for test in tests}


def own_end(library: str, transport: str, **variables: str) -> Contender:
    if library == "pscompy-lent" and not hasattr(Session, "empty"):
        raise NotMeasured("this pscompy has no registered pool")
    return _started(OWN, library, peers.pscompy(2, transport, **variables))


def mpi_end(peer: str, library: str, transport: str) -> Contender:
    return _started(peer, library, peers.mpi(peer, 2, transport))


def _started(name: str, library: str, start: peers.Start) -> Contender:
    """A contender that is started by the library's own launcher."""
    end = [*start.command, "-m", "bench.end", library]
    return Contender(name, lambda folder: [[*end, str(folder)]], start.environment)


def _plain(library: str, start: Callable[[], peers.Start] = peers.python) -> Contender:
    """A contender whose two processes are started without a launcher."""
    started = start()
    end = [*started.command, "-m", "bench.end", library]

    def commands(folder: Path) -> list[list[str]]:
        return [[*end, str(folder), role] for role in "01"]

    return Contender(library, commands, started.environment)


def limit(program: str, tests: Sequence[Test]) -> Launch:
    def launch_limit(seconds: float) -> Figures:
        limit = Limit(program)
        return {test.cell.name: test.measure(limit, seconds) for test in tests}

    return launch_limit


def _against_mpi(
    transport: str, tests: Sequence[Test], own: str = "", mpi: str = "mpi4py"
) -> dict[str, Launch]:
    """The launches of pscompy and of each MPI; `own` and `mpi` are libraries of bench/end.py."""
    launches = {OWN: partial(launch, partial(own_end, own or f"pscompy-{transport}", transport))}
    launches |= {peer: partial(launch, partial(mpi_end, peer, mpi, transport)) for peer in MPI}
    return {name: partial(launch, tests) for name, launch in launches.items()}


def sockets(library: str, tests: Sequence[Test]) -> Launch:
    return partial(launch, partial(_plain, library), tests)


def ucxx(transport: str, tests: Sequence[Test]) -> Launch:
    return partial(launch, partial(_plain, "ucxx", partial(peers.ucxx, transport)), tests)


def grouped(name: str, title: str, tests: Sequence[Test], launches: Mapping[str, Launch]) -> Group:
    return Group(name, title, tuple(test.cell for test in tests), launches)


# ---- latency, bandwidth, rate -------------------------------------------------------------------


def _latency(transport: str, bars: dict[int, float], more: Sequence[Test] = ()) -> Group:
    tests = [
        Test(
            Cell(f"{transport} one way, {with_unit(size)}", "us", bar, size=size),
            Job(LATENCY, size, 1, 1),
            one_way_us,
        )
        for size, bar in bars.items()
    ]
    tests += more
    launches = _against_mpi(transport, tests)
    if transport == "tcp":
        launches["sockets"] = sockets("sockets", tests)
    launches["limit"] = limit(transport, tests)
    return grouped(f"{transport}-latency", f"{transport}: one-way latency", tests, launches)


def _to_polling_sockets() -> Test:
    cell = Cell("tcp one way, 8 B, to a polling C socket", "us", 1.15, ("limit",))
    return Test(cell, Job(LATENCY, 8, 1, 1), one_way_us)


def _bandwidth(transport: str, bars: dict[int, float]) -> Group:
    against = (*MPI, "sockets") if transport == "tcp" else MPI
    tests = [
        Test(
            Cell(f"{transport} bandwidth, {with_unit(size)}", "GB/s", bar, against, size),
            Job(STREAM, size, 1, 64 if size < 64 * M else 8),
            gigabytes,
        )
        for size, bar in bars.items()
    ]
    launches = _against_mpi(transport, tests)
    if transport == "tcp":
        launches["sockets"] = sockets("sockets", tests)
    else:
        launches["limit"] = limit("copy", tests)
    return grouped(f"{transport}-bandwidth", f"{transport}: windowed bandwidth", tests, launches)


def _rate() -> Group:
    cell = Cell("shm messages of 8 B", "M/s", 2.0)
    tests = [Test(cell, Job(STREAM, 8, 1, 64), lambda taken: taken.messages_per_second / 1e6)]
    return grouped("shm-rate", "shm: message rate", tests, _against_mpi("shm", tests))


def _lent() -> Group:
    tests = []
    for size, bar in LENT.items():
        job = Job(LATENCY, size, 1, 1)
        first = Cell(f"lent, first use, {with_unit(size)}", "us")
        tests += [
            Test(first, job, one_way_us, once=True),
            Test(Cell(f"lent one way, {with_unit(size)}", "us", bar), job, one_way_us),
        ]
    launches = _against_mpi("shm", tests, own="pscompy-lent", mpi="mpi4py-read")
    return grouped("shm-lent", "shm: lent from the pool, a byte of each page read", tests, launches)


def _choice(transport: str) -> Group:
    """The automatic choice of the protocol of a message, against each protocol forced."""
    tests = [
        Test(
            Cell(f"{transport} one way, {with_unit(size)}", "us", CHOICE_BAR, tuple(FORCED), size),
            Job(LATENCY, size, 1, 1),
            one_way_us,
        )
        for size in CHOICE_SIZES
    ]
    end = partial(own_end, f"pscompy-{transport}", transport)
    launches: dict[str, Launch] = {OWN: partial(launch, end, tests)}
    for name, threshold in FORCED.items():
        forced = {f"PSP_{transport.upper()}_RENDEZVOUS": threshold}
        launches[name] = partial(launch, partial(end, **forced), tests)
    title = f"{transport}: the chosen protocol against each protocol forced"
    return grouped(f"{transport}-choice", title, tests, launches)


# ---- waiting ------------------------------------------------------------------------------------


def _wake(transport: str, family: str) -> Group:
    """The group about waiting; `family` is that of the blocking socket in the comparison."""
    wake = Test(
        Cell(f"{transport} waking a sleeping receiver", "us", 1.25, ("sockets",)),
        Job(WAKE, 8, _WAKE_UPS, 1),
        lambda taken: taken.seconds * 1e6,
        once=True,
    )
    asleep = Test(
        Cell(f"{transport} processor use while asleep", "%", 1.0, ()),
        Job(ASLEEP, 8, 1, 1),
        lambda taken: taken.seconds * 100,
        once=True,
    )
    tests = [wake, asleep]
    launches: dict[str, Launch] = {
        OWN: partial(launch, partial(own_end, f"pscompy-{transport}", transport), tests),
        "sockets": sockets(f"blocking-{family}", tests),
        "limit": limit(family, [wake]),
    }
    return grouped(f"{transport}-wake", f"{transport}: waking a sleeping receiver", tests, launches)


def _asyncio() -> Group:
    cell = Cell("asyncio round trip, 8 B", "us", 0.5, ("streams",))
    tests = [Test(cell, Job(AWAIT, 8, 1, 1), lambda taken: 2 * taken.one_way_us)]
    launches: dict[str, Launch] = {
        OWN: partial(launch, partial(own_end, "pscompy-asyncio", "shm"), tests),
        "streams": sockets("streams", tests),
    }
    return grouped("asyncio", "asyncio over shm, against streams of a Unix socket", tests, launches)


def groups() -> tuple[Group, ...]:
    return (
        _latency("shm", SHM_LATENCY),
        _lent(),
        _bandwidth("shm", SHM_BANDWIDTH),
        _rate(),
        _latency("tcp", TCP_LATENCY, [_to_polling_sockets()]),
        _bandwidth("tcp", TCP_BANDWIDTH),
        _choice("shm"),
        _choice("tcp"),
        _wake("shm", "unix"),
        _wake("tcp", "inet"),
        _asyncio(),
    )
