"""Groups of objects: between two processes, in threads, and as archives alone.

After figures 3 and 5 of "Zero copy serialization using RMA in the HPX distributed task-based
runtime" (Biddiscombe et al.).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from bench import pairs, peers
from bench.native import NotMeasured
from bench.rows import MPI, OWN, Cell, Figures, Group, K, Launch, M
from pscompy.cli.measure import LATENCY, Job
from pscompy.cli.sizes import with_unit

_PICKLE = tuple(f"{peer} pickle" for peer in MPI)
_PKL5 = tuple(f"{peer} pkl5" for peer in MPI)
_APART = f"{OWN} apart"
_SIZES = (64 * K, M, 4 * M)
_PARTS = 10
_TOGETHER = 0.77  # bar of one offer for all arrays, of the time with a message for each
_FIGURE_SIZES = tuple(K << power for power in range(0, 18, 2))  # to 64 MiB
_PROGRAM_SECONDS = 60.0


# ---- between two processes ----------------------------------------------------------------------


def _objects(transport: str, bars: dict[int, float]) -> Group:
    """Objects over a transport: a dictionary compared with plain pickle, arrays with pkl5."""
    job = partial(Job, LATENCY, count=1, window=1)
    dictionary = Cell("a small dictionary, one way", "us", bars[8], _PICKLE)
    tests = [pairs.Test(dictionary, job(8), pairs.one_way_us)]
    for size in _SIZES:
        cell = Cell(f"array of {with_unit(size)}, one way", "us", bars[size], _PKL5, size)
        tests.append(pairs.Test(cell, job(size), pairs.one_way_us))
    cell = Cell(f"list of {_PARTS} arrays of 64 KiB, one way", "us", _TOGETHER, (_APART,))
    parts = pairs.Test(cell, job(64 * K, window=_PARTS), pairs.one_way_us)
    tests.append(parts)
    apart = partial(pairs.own_end, f"pscompy-{transport}-apart", transport)
    launches: dict[str, Launch] = {_APART: partial(pairs.launch, apart, [parts])}
    # Memory cannot be lent over tcp: the last message would wait for a sender that has gone on.
    for name in ("objects", "in-band", *(["objects-lent"] if transport == "shm" else [])):
        own = partial(pairs.own_end, f"pscompy-{transport}-{name}", transport)
        label = OWN if name == "objects" else f"{OWN} {name.removeprefix('objects-')}"
        launches[label] = partial(pairs.launch, own, tests)
    launches |= _peers(transport, tests)
    if transport == "shm":
        launches["limit"] = pairs.limit("shm", tests[1:-1])
    title = f"{transport}: Python objects, one-way latency"
    return pairs.grouped(f"{transport}-objects", title, tests, launches)


def _peers(transport: str, tests: Sequence[pairs.Test]) -> dict[str, Launch]:
    launches: dict[str, Launch] = {}
    for peer in MPI:
        for kind in ("pickle", "pkl5"):
            other = partial(pairs.mpi_end, peer, f"mpi4py-{kind}", transport)
            launches[f"{peer} {kind}"] = partial(pairs.launch, other, tests)
    launches["ucxx"] = pairs.ucxx(transport, tests)
    if transport == "shm":
        launches |= {name: pairs.sockets(name, tests) for name in ("multiprocessing", "zmq")}
    return launches


# ---- archives alone, figure 3 -------------------------------------------------------------------

_SERIALISERS = ("pickle in-band", "pickle 5", "cloudpickle", "msgpack", "pyarrow")


def _archive() -> Group:
    cells = []
    for size in (20 * K, 64 * K, 64 * M):
        against = ("pickle 5",) if size == 20 * K else ()
        cells += [
            Cell(f"parts of {with_unit(size)}: to write", "us", 1.0 if against else None, against),
            Cell(f"parts of {with_unit(size)}: to read", "us", None, ()),
            Cell(f"parts of {with_unit(size)}: archive", "B", None, ()),
        ]
    names = {OWN: OWN, **{name: name for name in _SERIALISERS}}
    launches: dict[str, Launch] = {
        label: partial(_serialise, name) for label, name in names.items()
    }
    return Group("archive", "an object of ten arrays, taken apart", tuple(cells), launches)


def _serialise(name: str, seconds: float) -> Figures:
    return _printed([sys.executable, "-m", "bench.archive", name, str(seconds)], peers.variables())


# ---- threads, figure 5 --------------------------------------------------------------------------

_WAYS = ("in-band", "pointer chunks", "registered chunks", "lent")


def _threads(count: int) -> Group:
    """Exchanges of `count` threads per side. The peers have one thread, so only one thread per side
    is compared with them."""
    tests = [
        pairs.Test(
            Cell(f"arrays of {with_unit(size)}, there and back", "MB/s", None, (), size),
            Job(LATENCY, size, 1, 1),
            lambda taken: taken.megabytes_per_second,
        )
        for size in _FIGURE_SIZES
    ]
    launches: dict[str, Launch] = {way: partial(_round_trips, way, count) for way in _WAYS}
    if count == 1:
        launches |= _peers("shm", tests)
    title = f"arrays there and back over shm, {count} thread{'s' if count > 1 else ''} a side"
    return pairs.grouped(f"objects-{count}-threads", title, tests, launches)


def _round_trips(way: str, threads: int, seconds: float) -> Figures:
    start = peers.pscompy(2, "shm")
    sizes = ",".join(map(str, _FIGURE_SIZES))
    program = ["-m", "bench.threads", way, str(threads), str(seconds), sizes]
    measured = _printed([*start.command, *program], start.environment)
    return {
        f"arrays of {with_unit(int(size))}, there and back": figure
        for size, figure in measured.items()
    }


def _printed(command: list[str], environment: Mapping[str, str]) -> Figures:
    """Run a program and return the JSON that it prints. Raises `NotMeasured` if it fails or does
    not end in _PROGRAM_SECONDS."""
    try:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_PROGRAM_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"it has not ended after {_PROGRAM_SECONDS:.0f} s") from None
    if ended.returncode:
        raise NotMeasured(ended.stderr.strip().splitlines()[-1])
    figures: Figures = json.loads(ended.stdout)
    return figures


def groups() -> tuple[Group, ...]:
    shm = {8: 0.85, 64 * K: 0.7, M: 0.5, 4 * M: 0.3}
    tcp = {8: 0.85, 64 * K: 0.7, M: 0.7, 4 * M: 0.7}
    return (
        _objects("shm", shm),
        _objects("tcp", tcp),
        _archive(),
        *(_threads(count) for count in (1, 2, 4)),
    )
