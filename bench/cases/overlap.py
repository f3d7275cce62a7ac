"""Groups about messages that move while a process computes: long messages into receives that
their sender sees (PSP_TUPLEQ).

After figure 5 of "TupleQ: Fully-Asynchronous and Zero-Copy MPI over InfiniBand" (Koop et al.).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bench import loops
from bench.launches import Make, Measure, Test, cells, each, gigabytes, mpi, own, prepared
from bench.native import NotMeasured, cores
from bench.rows import MPI, OWN, SIZES, TRIALS, Cell, Figures, Group, K, Launch, M
from pscompy.cli.measure import STREAM, Job
from pscompy.cli.sampling import Pair, Sample
from pscompy.cli.sizes import with_unit

_OFF = "TUPLEQ=0"
_RECEIVED = tuple(K << power for power in (3, 4, 6, 8, 10, 12))
_SENT = tuple(K << power for power in (6, 8, 10, 12))
_COSTS = tuple(K << power for power in (0, 2, 4, 6, 8, 10, 12))
_TRIALS = 15
_AWAY = 1 / 3  # of the time for a figure: 50 ms of 150
# A receive may cost the greater of these, beside the computation: seconds, share of its transfer.
_LEAST, _SHARE = 1.5e-6, 0.05
_COSTS_FROM = 16 * K
_LEFT = "% left"
_STEPS = 1_000_000
_FEW = 20  # repetitions that tell how long one takes
# Size in bytes -> the bar of its cell.
_PREPOSTED: dict[int, float | None] = {
    8 * K: None,
    16 * K: 0.85,
    32 * K: None,
    64 * K: 0.7,
    M: 0.95,
}
_SHORT = {8: 1.02, M: 1.05}
_WINDOW = 20
_BOUNDARY = M  # bytes between the processes of a skeleton
_DEPENDENT = 50e-6  # seconds of computation


# ---- how the processes are started --------------------------------------------------------------

_BOTH = {OWN: own("shm"), _OFF: own("shm", TUPLEQ="0")}
ENDS = {
    OWN: own("shm", TUPLEQ="1"),
    _OFF: own("shm", TUPLEQ="0"),
    "thread": own("shm", TUPLEQ="0", PROGRESS_THREAD="1"),
    "tcp": own("tcp"),
    "tcp thread": own("tcp", PROGRESS_THREAD="1"),
    "portals": own("portals"),
    **mpi(),
}


def _prepare() -> None:
    if len(set(cores())) == 1:
        raise NotMeasured("there is one core only")
    loops.build()


def launches(ends: Mapping[str, Make], what: Sequence[Test] | Measure) -> dict[str, Launch]:
    return {name: prepared(_prepare, launch) for name, launch in each(ends, what).items()}


def _step(pair: Pair) -> float:
    """The seconds of a step of the computation."""
    return min(pair.run(Job(loops.WORK, 8, _STEPS, 1)) for _ in range(_FEW)) / _STEPS


# ---- one side is away ---------------------------------------------------------------------------


def _away_tests() -> Iterable[tuple[Cell, str]]:
    for size in _RECEIVED:
        name = f"receiver away, {with_unit(size)} there"
        yield (
            Cell(name, TRIALS, _TRIALS, (), size, "bytes to a receiver that is away"),
            loops.RECEIVER_AWAY,
        )
    for size in _SENT:
        name = f"sender away, {with_unit(size)} received"
        yield (
            Cell(name, TRIALS, _TRIALS, (), size, "bytes of a sender that is away"),
            loops.SENDER_AWAY,
        )


def _away(pair: Pair, seconds: float) -> Figures:
    window = int(seconds * _AWAY * 1e6)
    figures = {}
    for cell, test in _away_tests():
        assert cell.size is not None
        figures[cell.name] = pair.run(Job(test, cell.size, _TRIALS, window))
    return figures


def _away_group() -> Group:
    rows = tuple(cell for cell, _ in _away_tests())
    return Group("overlap-away", "messages while one side computes", rows, launches(ENDS, _away))


# ---- what a receive costs besides the computation, figure 5 -------------------------------------


def _available(size: int) -> str:
    return f"processor left to the receiver, {with_unit(size)}"


def _cost(size: int) -> str:
    return f"overhead of the receiver, {with_unit(size)}"


def _allowed(size: int) -> str:
    return f"overhead, of that allowed, {with_unit(size)}"


def _costs(pair: Pair, seconds: float) -> Figures:
    """The time of a transfer is calibrated apart from that of the computation, which is twice as
    long."""
    step = _step(pair)
    figures = {}
    for size in _COSTS:
        job = Job(loops.EXCHANGE, size, _FEW, 0)
        few = max(pair.run(job), _LEAST)
        base = pair.run(replace(job, count=max(_FEW, int(seconds / few))))
        steps = int(2 * base / step)
        more = replace(job, count=max(_FEW, int(seconds / (5 * base))), window=steps)
        cost = pair.run(more)
        figures[_available(size)] = 100 * (1 - cost / base)
        figures[_cost(size)] = cost * 1e6
        if size >= _COSTS_FROM:
            figures[_allowed(size)] = cost / max(_LEAST, _SHARE * base)
    return figures


def _costs_group() -> Group:
    rows = [Cell(_available(size), _LEFT, None, (), size) for size in _COSTS]
    over = f"{SIZES} to a receiver that computes"
    rows += [Cell(_cost(size), "us", None, (), size, over) for size in _COSTS]
    rows += [Cell(_allowed(size), "x", 1.0, ()) for size in _COSTS if size >= _COSTS_FROM]
    title = "overlap at the receiver, which computes twice as long as a transfer takes"
    return Group("overlap-receiver", title, tuple(rows), launches(ENDS, _costs))


# ---- latency, bandwidth -------------------------------------------------------------------------


def _of_tests(name: str, title: str, tests: Sequence[Test], ends: Mapping[str, Make]) -> Group:
    return Group(name, title, cells(tests), launches(ends, tests))


def _preposted() -> Group:
    tests = [
        Test(
            Cell(f"preposted, {with_unit(size)}, one way", "us", bar, (_OFF,), size),
            Job(loops.PREPOSTED, size, 1, 1),
        )
        for size, bar in _PREPOSTED.items()
    ]
    tests += [
        Test(
            Cell(f"empty into a receive of {with_unit(size)}, one way", "us", bar, (_OFF,)),
            Job(loops.SHORT, size, 1, 1),
        )
        for size, bar in _SHORT.items()
    ]
    return _of_tests("overlap-latency", "receives that are posted first", tests, _BOTH | mpi())


def _gigabytes(taken: Sample) -> float:
    """`Job` counts messages of both directions for a test that it does not know."""
    return taken.megabytes_per_second / 1e3 / 2


def _windows() -> Group:
    tests = [
        Test(
            Cell(f"bandwidth, {with_unit(size)}", "GB/s", bar, against, size),
            Job(STREAM, size, 1, 64),
            gigabytes,
        )
        for size, bar, against in ((64 * K, 1.3, MPI), (M, None, MPI))
    ]
    tests.append(_window("windows posted first, 64 KiB", None))
    return _of_tests("overlap-bandwidth", "windowed bandwidth", tests, _BOTH | mpi())


def _window(name: str, bar: float | None) -> Test:
    return Test(
        Cell(name, "GB/s", bar, (_OFF,)), Job(loops.WINDOWS, 64 * K, 1, _WINDOW), _gigabytes
    )


def _wildcards() -> Group:
    tests = [_window("windows posted first, 64 KiB", 0.95)]
    ends = {
        OWN: own("shm", "wild"),
        _OFF: own("shm", "wild", TUPLEQ="0"),
        **mpi("mpi4py-wild"),
    }
    return _of_tests("overlap-wildcards", "every tenth receive from any source", tests, ends)


# ---- skeletons of programs ----------------------------------------------------------------------

_SKELETONS = {
    loops.SWEEP: Cell("sweep, send", "stages/s", 1.1, (_OFF,)),
    loops.SWEEP_LATER: Cell("sweep, isend", "stages/s", None, (_OFF,)),
    loops.SYMMETRICAL: Cell("symmetrical", "stages/s", 1.0, (_OFF,)),
}


def _stages(pair: Pair, seconds: float) -> Figures:
    steps = int(_DEPENDENT / _step(pair))
    figures = {}
    for test, cell in _SKELETONS.items():
        job = Job(test, _BOUNDARY, _FEW, steps)
        each = pair.run(job) / job.count
        job = replace(job, count=max(_FEW, int(seconds / each)))
        figures[cell.name] = job.count / pair.run(job)
    return figures


def _skeletons() -> Group:
    title = f"stages of two processes with messages of {with_unit(_BOUNDARY)}"
    ends = _BOTH | {"portals": ENDS["portals"], **mpi()}
    return Group("overlap-skeletons", title, tuple(_SKELETONS.values()), launches(ends, _stages))


def groups() -> tuple[Group, ...]:
    return (
        _away_group(),
        _costs_group(),
        _preposted(),
        _windows(),
        _wildcards(),
        _skeletons(),
    )
