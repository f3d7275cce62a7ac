"""Latency, bandwidth and rate of messages, and waiting for them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.launches import (
    Make,
    Test,
    against_mpi,
    cells,
    each,
    gigabytes,
    limit,
    of_tests,
    own,
    plain,
    raw_us,
)
from bench.loops import ASLEEP, AWAIT, WAKE
from bench.rows import MPI, OWN, Cell, Group, K, M
from pscompy.cli.measure import LATENCY, STREAM, Job
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
_WAKE_UPS, _PAUSE_US = 200, 2_000  # much longer than any library polls before it sleeps


def _limits(transport: str, program: str) -> dict[str, Make]:
    """Return the limits that are shown beside the libraries, and over tcp Python's sockets."""
    sockets = {"sockets": plain("sockets")} if transport == "tcp" else {}
    return {**sockets, **({"limit": limit(program)} if program else {})}


# ---- latency, bandwidth, rate -------------------------------------------------------------------


def _latency(transport: str, bars: dict[int, float], more: Sequence[Test] = ()) -> Group:
    tests = [
        Test(
            Cell(f"{transport} one way, {with_unit(size)}", "us", bar, size=size),
            Job(LATENCY, size, 1, 1),
        )
        for size, bar in bars.items()
    ]
    makes = against_mpi(transport) | _limits(transport, transport)
    title = f"{transport}: one-way latency"
    return of_tests(f"{transport}-latency", title, [*tests, *more], makes)


def _to_polling_sockets() -> Test:
    cell = Cell("tcp one way, 8 B, to a polling C socket", "us", 1.15, ("limit",))
    return Test(cell, Job(LATENCY, 8, 1, 1))


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
    makes = against_mpi(transport) | _limits(transport, "copy" if transport == "shm" else "")
    return of_tests(f"{transport}-bandwidth", f"{transport}: windowed bandwidth", tests, makes)


def _rate() -> Group:
    cell = Cell("shm messages of 8 B", "M/s", 2.0)
    tests = [Test(cell, Job(STREAM, 8, 1, 64), lambda taken: taken.messages_per_second / 1e6)]
    return of_tests("shm-rate", "shm: message rate", tests, against_mpi("shm"))


def _lent() -> Group:
    tests = []
    for size, bar in LENT.items():
        job = Job(LATENCY, size, 1, 1)
        tests += [
            Test(Cell(f"lent, first use, {with_unit(size)}", "us"), job, once=True),
            Test(Cell(f"lent one way, {with_unit(size)}", "us", bar), job),
        ]
    makes = against_mpi("shm", "lent", "mpi4py-read")
    title = "shm: lent from the pool, a byte of each page read"
    return of_tests("shm-lent", title, tests, makes)


def _choice(transport: str) -> Group:
    """The automatic choice of the protocol of a message, against each protocol forced."""
    tests = [
        Test(
            Cell(f"{transport} one way, {with_unit(size)}", "us", CHOICE_BAR, tuple(FORCED), size),
            Job(LATENCY, size, 1, 1),
        )
        for size in CHOICE_SIZES
    ]
    threshold = f"{transport.upper()}_RENDEZVOUS"
    makes = {OWN: own(transport)}
    makes |= {name: own(transport, **{threshold: it}) for name, it in FORCED.items()}
    title = f"{transport}: the chosen protocol against each protocol forced"
    return of_tests(f"{transport}-choice", title, tests, makes)


# ---- waiting ------------------------------------------------------------------------------------


def _wake(transport: str, family: str) -> Group:
    """The group about waiting; `family` is that of the blocking socket in the comparison."""
    wake = Test(
        Cell(f"{transport} waking a sleeping receiver", "us", 1.25, ("sockets",)),
        Job(WAKE, 8, _WAKE_UPS, _PAUSE_US),
        raw_us,
        once=True,
    )
    asleep = Test(
        Cell(f"{transport} processor use while asleep", "%", 1.0, ()),
        Job(ASLEEP, 8, 1, 1),
        lambda taken: taken.rounds[0] * 100,
        once=True,
    )
    makes = {OWN: own(transport), "sockets": plain(f"blocking-{family}")}
    launches = each(makes, [wake, asleep]) | each({"limit": limit(family)}, [wake])
    title = f"{transport}: waking a sleeping receiver"
    return Group(f"{transport}-wake", title, cells([wake, asleep]), launches)


def _asyncio() -> Group:
    cell = Cell("asyncio round trip, 8 B", "us", 0.5, ("streams",))
    tests = [Test(cell, Job(AWAIT, 8, 1, 1), lambda taken: 2 * taken.one_way_us)]
    makes = {OWN: own("shm", "asyncio"), "streams": plain("streams")}
    return of_tests("asyncio", "asyncio over shm, against streams of a Unix socket", tests, makes)


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
