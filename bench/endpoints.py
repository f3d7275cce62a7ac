"""Cases of threads with endpoints of their own, in Python and in C."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench.libraries import of_world
from bench.many import THREADS, by_threads, ping_pongs
from bench.native import FOLDER, built
from bench.rows import Figures
from pscompy.cli.libraries import Ranks

if TYPE_CHECKING:
    from pscompy import Communicator

LONG, HUGE, HUGE_MESSAGES = 1 << 20, 64 << 20, 10
MORE = 24  # endpoints whose memory is measured
SIZE, CACHE_LINE = 8, 64
EXCHANGE = "1 MiB there and back by 2 threads"
LOOP = "8 B by 2 C threads over loop"
ALONE = "8 B by 1 C thread over loop"
ONE_LINE = "8 B by 2 C threads over loop, their buffers in one cache line"
BESIDE = "8 B by a C thread over loop beside one with 64 MiB"
LONGEST = "the longest of these messages of 8 B"
LOCKED = "the longest wait of its thread for a lock"
MEMORY = "PSS per endpoint"


def _pss_mib() -> float:
    """The memory of this process without that of files, whose share depends on how many other
    processes have mapped them."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) for line in lines if line.endswith("kB")}
    return (sizes["Pss_Anon:"] + sizes["Pss_Shmem:"]) / 1024


_LIBRARY = FOLDER / "endpoints.so"


@cache
def build() -> None:
    """Compile endpoints.c anew, because headers of pscompy may have changed."""
    from pscompy import get_include

    _LIBRARY.unlink(missing_ok=True)
    built("endpoints.c", ".so", "-shared", "-fPIC", "-pthread", f"-I{get_include()}")


@contextlib.contextmanager
def _opened(sharing: str) -> Iterator[Callable[[int], list[Communicator]]]:
    """A function that makes Communicators of the World for as many threads."""
    from pscompy import World

    with contextlib.ExitStack() as stack:
        if sharing == "everywhere":
            yield lambda number: [stack.enter_context(World()) for _ in range(number)]
        else:
            yield stack.enter_context(World({"ENDPOINTS": sharing})).endpoints


def _connect(endpoints: list[Communicator]) -> None:
    """Use the connection of each endpoint once."""
    for endpoint in endpoints:
        endpoint.sendrecv(b"", 1 - endpoint.rank)
    endpoints[0].barrier()


def messages(ranks: Ranks, seconds: float) -> Figures:
    """Figures of two ranks' threads in Python."""
    ping_pongs(ranks, 1, 0)
    figures = {by_threads(number): ping_pongs(ranks, number, seconds) for number in THREADS}
    figures[EXCHANGE] = ping_pongs(ranks, 2, seconds, LONG) * LONG
    return figures


def _of_c_threads(endpoints: list[Communicator], seconds: float) -> Figures:
    """Figures of threads in C that exchange messages with themselves."""
    from pscompy import capi

    library = ctypes.CDLL(str(_LIBRARY))
    library.endpoints_rate.restype = library.endpoints_beside.restype = ctypes.c_double
    for endpoint in endpoints:
        endpoint[endpoint.rank].open()
    pointers = ctypes.c_void_p * len(endpoints)
    workers = pointers(*(capi.worker(it.session) for it in endpoints))
    conns = pointers(*(capi.connection(it[it.rank]) for it in endpoints))
    table, longest = ctypes.c_void_p(capi.table()), ctypes.c_double()

    def taken(threads: int, apart: int, count: int) -> float:
        arguments = (table, threads, workers, conns, ctypes.c_long(count), ctypes.c_size_t(apart))
        return float(library.endpoints_rate(*arguments))

    def fastest(threads: int, apart: int = CACHE_LINE) -> float:
        count = max(1000, int(seconds * 10_000 / taken(threads, apart, 10_000)))
        return threads * count / taken(threads, apart, count) / 1e6

    figures = {ALONE: fastest(1), LOOP: fastest(2), ONE_LINE: fastest(2, SIZE)}
    beside = library.endpoints_beside(
        *(table, workers, conns, ctypes.c_size_t(HUGE), ctypes.c_long(HUGE_MESSAGES)),
        ctypes.byref(longest),
    )
    locked = endpoints[0].stats["lock_longest_ns"] / 1e3
    return {**figures, BESIDE: beside / 1e6, LONGEST: longest.value * 1e6, LOCKED: locked}


def endpoints(library: None, seconds: float, sharing: str) -> Figures | None:
    """All figures. `sharing` is a value of PSP_ENDPOINTS, or "everywhere": a World each."""
    with _opened(sharing) as make:
        mine = make(max(THREADS))
        _connect(mine)
        own = of_world(mine[0])
        ranks = replace(
            own,
            send=lambda it, peer, tag: mine[tag].send(it, peer, tag),
            recv=lambda it, peer, tag: mine[tag].recv(it, peer, tag),
        )
        figures = messages(ranks, seconds)
        if own.rank == 0:
            figures |= _of_c_threads(mine[:2], seconds)
        own.barrier()
        before = _pss_mib()
        more = make(MORE)
        _connect(more)
        figures[MEMORY] = (_pss_mib() - before) / MORE
        more[0].barrier()
        return figures if own.rank == 0 else None
