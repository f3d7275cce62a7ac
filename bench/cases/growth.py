"""How costs grow with numbers. The figures of all these groups are drawn in one picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from bench import connections, many, peers, tasks
from bench.cases.objects import lists
from bench.launches import (
    Test,
    between,
    each,
    own,
    plain,
    ranks,
    ranks_against_mpi,
    together,
    with_ratios,
)
from bench.loops import WAKE, WAKE_SLOWEST
from bench.rows import MPI, OWN, Cell, Figures, Group, Launch
from pscompy.cli.measure import LATENCY, Job
from pscompy.cli.sampling import Pair

# ---- connecting ---------------------------------------------------------------------------------

_RANKS = 32
# Ranks -> the bar of their first all-to-all: milliseconds, or times the better MPI.
_FIRST = {8: (10.0, ()), _RANKS: (4.0, MPI)}
# Transport -> the bar for many connections, in seconds.
_MANY: dict[str, float | None] = {"SHM": None, "TCP": 1.5}
_TO_ONE = f"{connections.MANY} ranks of a node with one, from {_RANKS - 1}"


def _first(number: int) -> str:
    return f"first all-to-all of {number} ranks"


def _connect_rows() -> Iterator[Cell]:
    for number, (bar, against) in _FIRST.items():
        yield Cell(_first(number), "ms", bar, against, number, "ranks in their first all-to-all")
    yield Cell(_TO_ONE, "s", 0.5, ())
    for transport, limit in _MANY.items():
        yield Cell(connections.opened(transport), "s", limit, ())
        yield Cell(connections.descriptors(transport), "", 3.0, ())


def _firsts(start: Callable[[int], peers.Start], library: str) -> list[Launch]:
    case = many.first_messages
    return [ranks(partial(start, it), library, case, _first(it), 1e3) for it in _FIRST]


def _connect() -> Group:
    start, scale = partial(peers.pscompy, _RANKS), connections.MANY / (_RANKS - 1)
    star = ranks(start, OWN, many.first_messages, _TO_ONE, scale, "star")
    opening = [ranks(partial(peers.pscompy, 2), OWN, connections.opening, it) for it in _MANY]
    launches = {OWN: together(*_firsts(peers.pscompy, OWN), star, *opening)}
    launches |= {peer: together(*_firsts(partial(peers.mpi, peer), "mpi4py")) for peer in MPI}
    return Group("growth-connect", "connecting with many at once", tuple(_connect_rows()), launches)


# ---- connections that are open ------------------------------------------------------------------

_NUMBERS = (100, 300, 900)
# Stage -> the bar in KiB.
_MEMORY = {
    connections.LAZY: None,
    connections.IDLE: None,
    connections.USED: 64.0,
    connections.LATER: 64.0,
}
_OPEN = (0, 100, 1_000)
# Transport -> the limit of the latency with most connections open, divided by that with none.
_BESIDE = {"shm": 1.5, "tcp": 1.2}


def _memory() -> Group:
    rows = tuple(
        Cell(connections.of_each(n, stage), "KiB", bar, (), n, f"connections, {stage}")
        for stage, bar in _MEMORY.items()
        for n in _NUMBERS
    )
    start = partial(peers.pscompy, 2)
    cases = [ranks(start, OWN, connections.memory, number) for number in _NUMBERS]
    title = "resident memory of a connection over shm"
    return Group("growth-memory", title, rows, {OWN: together(*cases)})


def _poll() -> Group:
    rows, cases, ratios = [], [], {}
    for transport, bar in _BESIDE.items():
        names = [f"{transport}, 8 B one way, {number:,} others open" for number in _OPEN]
        over = f"connections over {transport}"
        tests = [
            Test(Cell(name, "us", None, (), number + 1, over), Job(LATENCY, 8, 1, number))
            for name, number in zip(names, _OPEN, strict=True)
        ]
        ratio = f"{transport}, {_OPEN[-1]:,} others open / none"
        ratios[ratio] = names[-1], names[0]
        rows += [*(test.cell for test in tests), Cell(ratio, "x", bar, ())]
        cases.append(between(own(transport, f"{transport}-beside"), tests))
    launch = with_ratios(together(*cases), ratios)
    return Group("growth-poll", "latency among many connections", tuple(rows), {OWN: launch})


# ---- messages -----------------------------------------------------------------------------------

_MATCHING_BAR = 0.02  # of Open MPI's time at 10,000
_PAUSES, _PAUSE, _LEAST = (1, 3, 10, 30), 3, 20  # milliseconds; messages after each
_SLOWEST = f"after {_PAUSE} ms: 95 % take at most"
_SOCKET, _SOCKET_BAR = "blocking socket pair", 1.2


def _matching_rows() -> Iterator[Cell]:
    for what in (many.POSTED, many.UNEXPECTED):
        for number in many.NUMBERS:
            bar, against = (_MATCHING_BAR, ("openmpi",)) if number == 10_000 else (None, ())
            name = many.among(what, number)
            yield Cell(name, "us", bar, against, number, f"{what} messages")
        yield Cell(_ratio(what), "x", 2.0, ())
    for number in many.NUMBERS:
        over = "receives that wait for the messages"
        yield Cell(many.to_any(number), "us", None, (), number, over)
    yield Cell(many.MEMORY, "B", 300.0, ())


def _ratio(what: str) -> str:
    return f"{many.MANY:,} {what} / 1"


def _matching() -> Group:
    ratios = {
        _ratio(what): (many.among(what, many.MANY), many.among(what, 1))
        for what in (many.POSTED, many.UNEXPECTED)
    }
    launches = {
        name: with_ratios(launch, ratios)
        for name, launch in ranks_against_mpi(2, many.matching).items()
    }
    return Group("growth-matching", "matching among many", tuple(_matching_rows()), launches)


def _outstanding() -> Group:
    few, *_, most = many.OUTSTANDING
    ratio = f"{most:,} / {few:,} outstanding"
    rows = [
        Cell(many.each(number), "us", size=number, over="outstanding messages")
        for number in many.OUTSTANDING
    ]
    start = partial(peers.pscompy, 2, "tcp", RENDEZVOUS=str(many.LONG))
    ratios = {ratio: (many.each(most), many.each(few))}
    launch = with_ratios(ranks(start, OWN, many.outstanding), ratios)
    title = f"tcp: rendezvous of {many.LONG // 1000} kB by fragments"
    cells = (*rows, Cell(ratio, "x", 1.1, ()))
    return Group("growth-outstanding", title, cells, {OWN: launch})


def _after(pause: int) -> str:
    return f"after {pause} ms: median"


def _wake_up(pair: Pair, seconds: float) -> Figures:
    def us(test: str, pause: int) -> float:
        count = max(_LEAST, int(seconds * 1e3 / pause))
        return pair.run(Job(test, 8, count, pause * 1_000)) * 1e6

    figures = {_after(pause): us(WAKE, pause) for pause in _PAUSES}
    return {**figures, _SLOWEST: us(WAKE_SLOWEST, _PAUSE)}


def _waking() -> Group:
    rows = [
        Cell(
            _after(pause),
            "us",
            _SOCKET_BAR if pause == _PAUSE else None,
            (_SOCKET,),
            pause,
            "milliseconds of sleep",
        )
        for pause in _PAUSES
    ]
    rows.append(Cell(_SLOWEST, "us", _SOCKET_BAR, (_SOCKET,)))
    makes = {OWN: own("shm"), _SOCKET: plain("blocking-unix")}
    title = "shm: waking a receiver that sleeps"
    return Group("growth-waking", title, tuple(rows), each(makes, _wake_up))


# ---- threads and tasks --------------------------------------------------------------------------

_POOL = "multiprocessing"
_CALLED = f"{tasks.CALL} / {tasks.ROUND_TRIP}"
# Chunk -> the bar, times the pool's rate.
_CHUNKS = {1: 2.0, 10: None, 100: 1.0}


def _threads() -> Group:
    rows = tuple(
        Cell(many.by_threads(number), "M/s", 1.0, ("mpich",), number, "threads")
        for number in many.THREADS
    )
    launches = ranks_against_mpi(2, many.threads)
    return Group("growth-threads", "threads that share a session", rows, launches)


def _tasks() -> Group:
    rows = [
        Cell(tasks.CALL, "us", None, ()),
        Cell(tasks.ROUND_TRIP, "us", None, ()),
        Cell(_CALLED, "x", 2.0, ()),
        Cell(tasks.SUBMIT, "k/s", 3.0, (_POOL,)),
    ]
    rows += [
        Cell(tasks.mapped(chunk), "k/s", bar, (_POOL,), chunk, "tasks in a chunk")
        for chunk, bar in _CHUNKS.items()
    ]
    actions = ranks(partial(peers.pscompy, 1 + tasks.WORKERS, "shm"), OWN, tasks.actions)
    asleep = ranks(partial(peers.pscompy, 2, "shm", SPIN_US="0"), OWN, tasks.sleepers)
    launches = {
        OWN: with_ratios(together(actions, asleep), {_CALLED: (tasks.CALL, tasks.ROUND_TRIP)}),
        _POOL: ranks(peers.python, "none", tasks.pool),
    }
    title = f"empty actions; tasks in {tasks.WORKERS} processes"
    return Group("growth-tasks", title, tuple(rows), launches)


def groups() -> tuple[Group, ...]:
    return (
        _connect(),
        lists(),
        _matching(),
        _memory(),
        _outstanding(),
        _poll(),
        _tasks(),
        _threads(),
        _waking(),
    )
