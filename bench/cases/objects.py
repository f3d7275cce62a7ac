"""Objects: between two processes, in threads, in lists, and as archives alone.

After figures 3 and 5 of "Zero copy serialization using RMA in the HPX distributed task-based
runtime" (Biddiscombe et al.).
"""

from __future__ import annotations

from functools import partial

from bench import peers
from bench.archive import LENGTHS, PARTS, WAYS, archive, part
from bench.launches import Make, Test, cells, each, limit, mpi, of_tests, own, plain, ranks, ucxx
from bench.objects import by_threads, there_and_back
from bench.rows import MPI, OWN, Cell, Group, K, M
from pscompy.cli.measure import LATENCY, Job
from pscompy.cli.sizes import with_unit

_PICKLE = tuple(f"{peer} pickle" for peer in MPI)
_PKL5 = tuple(f"{peer} pkl5" for peer in MPI)
_APART = f"{OWN} apart"
_PIPE = "multiprocessing"
_SIZES = (64 * K, M, 4 * M)
_TOGETHER = 0.77  # bar of one offer for all arrays, of the time with a message for each
_FIGURE_SIZES = tuple(K << power for power in range(0, 18, 2))  # to 64 MiB
_LIST, _LIST_SIZES, _LIST_BAR = 1_000, (128, 1_024, 8_192), 0.7


# ---- between two processes ----------------------------------------------------------------------


def _objects(transport: str, bars: dict[int, float]) -> Group:
    """Objects over a transport: a dictionary compared with plain pickle, arrays with pkl5."""
    job = partial(Job, LATENCY, count=1, window=1)
    dictionary = Cell("a small dictionary, one way", "us", bars[8], _PICKLE)
    arrays = [
        Test(Cell(f"array of {with_unit(size)}, one way", "us", bars[size], _PKL5, size), job(size))
        for size in _SIZES
    ]
    cell = Cell(f"list of {PARTS} arrays of 64 KiB, one way", "us", _TOGETHER, (_APART,))
    parts = Test(cell, job(64 * K, window=PARTS))
    # Memory cannot be lent over tcp: the last message would wait for a sender that has gone on.
    ways = {OWN: "objects", f"{OWN} in-band": "in-band", f"{OWN} lent": "objects-lent"}
    if transport == "tcp":
        del ways[f"{OWN} lent"]
    makes = {label: own(transport, f"{transport}-{way}") for label, way in ways.items()}
    tests = [Test(dictionary, job(8)), *arrays, parts]
    launches = each({_APART: own(transport, f"{transport}-apart")}, [parts])
    launches |= each(makes | _peers(transport), tests)
    if transport == "shm":
        launches |= each({"limit": limit("shm")}, arrays)
    title = f"{transport}: Python objects, one-way latency"
    return Group(f"{transport}-objects", title, cells(tests), launches)


def _mpis(transport: str) -> dict[str, Make]:
    """mpi4py's lower-case methods, and those of its pkl5."""
    kinds = {kind: mpi(f"mpi4py-{kind}", transport) for kind in ("pickle", "pkl5")}
    return {f"{peer} {kind}": kinds[kind][peer] for peer in MPI for kind in kinds}


def _peers(transport: str) -> dict[str, Make]:
    makes = {**_mpis(transport), "ucxx": ucxx(transport)}
    if transport == "shm":
        makes |= {name: plain(name) for name in (_PIPE, "zmq")}
    return makes


def lists() -> Group:
    makes = {OWN: own("shm", "shm-objects"), _PIPE: plain(_PIPE), **_mpis("shm")}
    against = tuple(name for name in makes if name != OWN)
    tests = [
        Test(
            Cell(
                f"list of {_LIST:,} arrays of {size:,} B",
                "us",
                _LIST_BAR,
                against,
                size,
                "bytes in an array",
            ),
            Job(LATENCY, size, 1, _LIST),
        )
        for size in _LIST_SIZES
    ]
    return of_tests("growth-lists", f"lists of {_LIST:,} arrays, one way", tests, makes)


# ---- archives alone, figure 3 -------------------------------------------------------------------


def _archive() -> Group:
    first, rows = LENGTHS[0], []
    for size in LENGTHS:
        bar, against = (1.0, ("pickle 5",)) if size == first else (None, ())
        rows += [
            Cell(part(size, "to write"), "us", bar, against),
            Cell(part(size, "to read"), "us", None, ()),
            Cell(part(size, "archive"), "B", None, ()),
        ]
    launches = {name: ranks(peers.python, "none", archive, name) for name in WAYS}
    return Group("archive", "an object of ten arrays, taken apart", tuple(rows), launches)


# ---- threads, figure 5 --------------------------------------------------------------------------

_WAYS = {
    "in-band": "in-band",
    "pointer chunks": "objects",
    "registered chunks": "registered",
    "lent": "objects-lent",
}


def _threads(count: int) -> Group:
    """Exchanges of `count` threads per side. The peers have one thread, so only one thread per side
    is compared with them."""
    tests = [
        Test(
            Cell(there_and_back(size), "MB/s", None, (), size),
            Job(LATENCY, size, 1, 1),
            lambda taken: taken.megabytes_per_second,
        )
        for size in _FIGURE_SIZES
    ]
    start, sizes = partial(peers.pscompy, 2, "shm"), ",".join(map(str, _FIGURE_SIZES))
    launches = {
        label: ranks(start, OWN, by_threads, way, count, sizes) for label, way in _WAYS.items()
    }
    title = f"arrays there and back over shm, {count} thread{'s' if count > 1 else ''} a side"
    if count == 1:
        launches |= each(_peers("shm"), tests)
    return Group(f"objects-{count}-threads", title, cells(tests), launches)


def groups() -> tuple[Group, ...]:
    shm = {8: 0.85, 64 * K: 0.7, M: 0.5, 4 * M: 0.3}
    tcp = {8: 0.85, 64 * K: 0.7, M: 0.7, 4 * M: 0.7}
    return (
        _objects("shm", shm),
        _objects("tcp", tcp),
        _archive(),
        *(_threads(count) for count in (1, 2, 4)),
    )
