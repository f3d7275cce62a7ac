"""Groups about messages that move while a process computes: long messages into receives that
their sender sees (PSP_TUPLEQ).

After figure 5 of "TupleQ: Fully-Asynchronous and Zero-Copy MPI over InfiniBand" (Koop et al.).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from bench import computing, pairs
from bench.native import NotMeasured, cores
from bench.rows import MPI, OWN, SIZES, TRIALS, Cell, Figures, Group, K, Launch, M
from pscompy.cli.contenders import Contender
from pscompy.cli.measure import STREAM, Job
from pscompy.cli.sampling import Sample
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

Make = Callable[[], Contender]
Measure = Callable[[Contender, float], Figures]


# ---- how the processes are started --------------------------------------------------------------


def _own(transport: str, library: str = "", **variables: str) -> Make:
    given = {f"PSP_{name}": value for name, value in variables.items()}
    return partial(pairs.own_end, library or f"pscompy-{transport}", transport, **given)


def _mpi(library: str = "mpi4py") -> dict[str, Make]:
    return {peer: partial(pairs.mpi_end, peer, library, "shm") for peer in MPI}


_BOTH = {OWN: _own("shm"), _OFF: _own("shm", TUPLEQ="0")}
ENDS = {
    OWN: _own("shm", TUPLEQ="1"),
    _OFF: _own("shm", TUPLEQ="0"),
    "thread": _own("shm", TUPLEQ="0", PROGRESS_THREAD="1"),
    "tcp": _own("tcp"),
    "tcp thread": _own("tcp", PROGRESS_THREAD="1"),
    "portals": _own("portals"),
    **_mpi(),
}


def launch(make: Make, measure: Measure, seconds: float) -> Figures:
    if len(set(cores())) == 1:
        raise NotMeasured("there is one core only")
    computing.build()
    with make() as contender:
        return measure(contender, seconds)


def _launches(ends: Mapping[str, Make], measure: Measure) -> dict[str, Launch]:
    return {name: partial(launch, make, measure) for name, make in ends.items()}


def _step(pair: Contender) -> float:
    """The seconds of a step of the computation."""
    return min(pair.run(Job(computing.WORK, 8, _STEPS, 1)) for _ in range(_FEW)) / _STEPS


def _measured(tests: Sequence[pairs.Test], pair: Contender, seconds: float) -> Figures:
    return {test.cell.name: test.measure(pair, seconds) for test in tests}


# ---- one side is away ---------------------------------------------------------------------------


def _away_tests() -> Iterable[tuple[Cell, str]]:
    for size in _RECEIVED:
        name = f"receiver away, {with_unit(size)} there"
        yield (
            Cell(name, TRIALS, _TRIALS, (), size, "bytes to a receiver that is away"),
            computing.RECEIVER_AWAY,
        )
    for size in _SENT:
        name = f"sender away, {with_unit(size)} received"
        yield (
            Cell(name, TRIALS, _TRIALS, (), size, "bytes of a sender that is away"),
            computing.SENDER_AWAY,
        )


def _away(pair: Contender, seconds: float) -> Figures:
    window = int(seconds * _AWAY * 1e6)
    figures = {}
    for cell, test in _away_tests():
        assert cell.size is not None
        figures[cell.name] = pair.run(Job(test, cell.size, _TRIALS, window))
    return figures


def _away_group() -> Group:
    cells = tuple(cell for cell, _ in _away_tests())
    return Group("overlap-away", "messages while one side computes", cells, _launches(ENDS, _away))


# ---- what a receive costs besides the computation, figure 5 -------------------------------------


def _available(size: int) -> str:
    return f"processor left to the receiver, {with_unit(size)}"


def _cost(size: int) -> str:
    return f"overhead of the receiver, {with_unit(size)}"


def _allowed(size: int) -> str:
    return f"overhead, of that allowed, {with_unit(size)}"


def _costs(pair: Contender, seconds: float) -> Figures:
    """The time of a transfer is calibrated apart from that of the computation, which is twice as
    long."""
    step = _step(pair)
    figures = {}
    for size in _COSTS:
        job = Job(computing.EXCHANGE, size, _FEW, 0)
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
    cells = [Cell(_available(size), _LEFT, None, (), size) for size in _COSTS]
    over = f"{SIZES} to a receiver that computes"
    cells += [Cell(_cost(size), "us", None, (), size, over) for size in _COSTS]
    cells += [Cell(_allowed(size), "x", 1.0, ()) for size in _COSTS if size >= _COSTS_FROM]
    title = "overlap at the receiver, which computes twice as long as a transfer takes"
    return Group("overlap-receiver", title, tuple(cells), _launches(ENDS, _costs))


# ---- latency, bandwidth -------------------------------------------------------------------------


def _preposted() -> Group:
    tests = [
        pairs.Test(
            Cell(f"preposted, {with_unit(size)}, one way", "us", bar, (_OFF,), size),
            Job(computing.PREPOSTED, size, 1, 1),
            pairs.one_way_us,
        )
        for size, bar in _PREPOSTED.items()
    ]
    tests += [
        pairs.Test(
            Cell(f"empty into a receive of {with_unit(size)}, one way", "us", bar, (_OFF,)),
            Job(computing.SHORT, size, 1, 1),
            pairs.one_way_us,
        )
        for size, bar in _SHORT.items()
    ]
    launches = _launches(_BOTH | _mpi(), partial(_measured, tests))
    return pairs.grouped("overlap-latency", "receives that are posted first", tests, launches)


def _gigabytes(taken: Sample) -> float:
    """`Job` counts messages of both directions for a test that it does not know."""
    return taken.megabytes_per_second / 1e3 / 2


def _windows() -> Group:
    tests = [
        pairs.Test(
            Cell(f"bandwidth, {with_unit(size)}", "GB/s", bar, against, size),
            Job(STREAM, size, 1, 64),
            pairs.gigabytes,
        )
        for size, bar, against in ((64 * K, 1.3, MPI), (M, None, MPI))
    ]
    tests.append(_window("windows posted first, 64 KiB", None))
    launches = _launches(_BOTH | _mpi(), partial(_measured, tests))
    return pairs.grouped("overlap-bandwidth", "windowed bandwidth", tests, launches)


def _window(name: str, bar: float | None) -> pairs.Test:
    return pairs.Test(
        Cell(name, "GB/s", bar, (_OFF,)), Job(computing.WINDOWS, 64 * K, 1, _WINDOW), _gigabytes
    )


def _wildcards() -> Group:
    tests = [_window("windows posted first, 64 KiB", 0.95)]
    ends = {
        OWN: _own("shm", "pscompy-wild"),
        _OFF: _own("shm", "pscompy-wild", TUPLEQ="0"),
        **_mpi("mpi4py-wild"),
    }
    title = "every tenth receive from any source"
    launches = _launches(ends, partial(_measured, tests))
    return pairs.grouped("overlap-wildcards", title, tests, launches)


# ---- skeletons of programs ----------------------------------------------------------------------

_SKELETONS = {
    computing.SWEEP: Cell("sweep, send", "stages/s", 1.1, (_OFF,)),
    computing.SWEEP_LATER: Cell("sweep, isend", "stages/s", None, (_OFF,)),
    computing.SYMMETRICAL: Cell("symmetrical", "stages/s", 1.0, (_OFF,)),
}


def _stages(pair: Contender, seconds: float) -> Figures:
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
    ends = _BOTH | {"portals": ENDS["portals"], **_mpi()}
    return Group("overlap-skeletons", title, tuple(_SKELETONS.values()), _launches(ends, _stages))


def groups() -> tuple[Group, ...]:
    return (
        _away_group(),
        _costs_group(),
        _preposted(),
        _windows(),
        _wildcards(),
        _skeletons(),
    )
