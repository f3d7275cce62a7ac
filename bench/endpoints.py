"""Threads with endpoints of their own, against endpoints that share, a World for each thread, and
mpi4py with MPI_THREAD_MULTIPLE."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from bench import peers
from bench.endpoints_rank import ALONE, BESIDE, EXCHANGE, LOCKED, LONGEST, LOOP, MEMORY, ONE_LINE
from bench.jobs import run_ranks
from bench.many_threads import THREADS, rate
from bench.native import FOLDER
from bench.rows import OWN, Cell, Figures, Group
from pscompy import get_include

_RANKS = 2
_SOURCE = Path(__file__).with_suffix(".c")


@cache
def _library() -> Path:
    made = FOLDER / "endpoints.so"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-pthread"]
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, *flags, f"-I{get_include()}", "-o", made, _SOURCE], check=True)
    return made


def _launch(start: Callable[[], peers.Start], sharing: str, seconds: float) -> Figures:
    told = run_ranks(start(), "endpoints_rank.py", sharing, str(seconds), str(_library()))
    return told[0]


def group() -> Group:
    cells = (
        *(
            Cell(rate(number), "M/s", 2.0, ("mpich", "openmpi"), number, "threads")
            for number in THREADS
        ),
        Cell(EXCHANGE, "MB/s", 1.2, ("single",)),
        Cell(ALONE, "M/s", None, ("single",)),
        Cell(LOOP, "M/s", 1.8, ("single",)),
        Cell(ONE_LINE, "M/s", None, ("single",)),
        Cell(BESIDE, "M/s", None, ("single",)),
        Cell(LONGEST, "µs", None, ("single",)),
        Cell(LOCKED, "µs", None, ("single",)),
        Cell(MEMORY, "MiB", 1 / 3, ("everywhere",)),
    )
    ours = partial(partial, _launch, partial(peers.pscompy, _RANKS))
    launches = {OWN: ours("dynamic"), **{it: ours(it) for it in ("shared", "single", "everywhere")}}
    for peer in ("mpich", "openmpi"):
        launches[peer] = partial(_launch, partial(peers.mpi, peer, _RANKS), "mpi4py")
    return Group("endpoints", "threads with endpoints", cells, launches)
