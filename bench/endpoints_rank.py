"""A rank whose threads have endpoints: FOLDER SHARING SECONDS LIBRARY.so. Rank 0 has all figures.
SHARING is a value of PSP_ENDPOINTS, "everywhere" (a World for each thread), or "mpi4py"."""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.many_threads import THREADS, Ranks, measure, mpi4py, rate

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


def pss_mib() -> float:
    """The memory of this process without that of files, whose share depends on how many other
    processes have mapped them."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) for line in lines if line.endswith("kB")}
    return (sizes["Pss_Anon:"] + sizes["Pss_Shmem:"]) / 1024


@contextlib.contextmanager
def opened(sharing: str) -> Iterator[Callable[[int], list[Communicator]]]:
    """A function that makes Communicators of the World for as many threads."""
    from pscompy import World

    with contextlib.ExitStack() as stack:
        if sharing == "everywhere":
            yield lambda number: [stack.enter_context(World()) for _ in range(number)]
        else:
            yield stack.enter_context(World({"ENDPOINTS": sharing})).endpoints


def connected(endpoints: list[Communicator]) -> None:
    """Use the connection of each endpoint once."""
    for endpoint in endpoints:
        endpoint.sendrecv(b"", 1 - endpoint.rank)
    endpoints[0].barrier()


def of_messages(ranks: Ranks, seconds: float) -> dict[str, float]:
    """Figures of two ranks' threads in Python."""
    measure(ranks, 1, 0)
    figures = {rate(number): measure(ranks, number, seconds) for number in THREADS}
    figures[EXCHANGE] = measure(ranks, 2, seconds, LONG) * LONG
    return figures


def of_c_threads(endpoints: list[Communicator], path: str, seconds: float) -> dict[str, float]:
    """Figures of threads in C that exchange messages with themselves."""
    from pscompy import capi

    library = ctypes.CDLL(path)
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


def of_endpoints(sharing: str, seconds: float, path: str) -> tuple[int, dict[str, float]]:
    with opened(sharing) as make:
        endpoints = make(max(THREADS))
        connected(endpoints)
        peer = 1 - endpoints[0].rank
        ranks = Ranks(
            endpoints[0].rank,
            lambda it, tag: endpoints[tag].send(it, peer, tag),
            lambda it, tag: endpoints[tag].recv(it, peer, tag),
        )
        figures = of_messages(ranks, seconds)
        if ranks.rank == 0:
            figures |= of_c_threads(endpoints[:2], path, seconds)
        endpoints[0].barrier()
        before = pss_mib()
        more = make(MORE)
        connected(more)
        figures[MEMORY] = (pss_mib() - before) / MORE
        more[0].barrier()
        return ranks.rank, figures


def main(folder: str, sharing: str, seconds: str, path: str) -> None:
    if sharing == "mpi4py":
        with mpi4py() as ranks:
            rank, figures = ranks.rank, of_messages(ranks, float(seconds))
    else:
        rank, figures = of_endpoints(sharing, float(seconds), path)
    (Path(folder) / str(rank)).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
