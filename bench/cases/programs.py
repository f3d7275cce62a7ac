"""Whole programs: their start, many ranks at once, and threads with endpoints."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from bench import endpoints, many, peers
from bench.launches import Start, prepared, ranks, ranks_against_mpi, run
from bench.native import NotMeasured
from bench.rows import MPI, OWN, Cell, Figures, Group, Launch

_PROGRAM = str(Path(__file__).parents[1] / "startup.py")
_START_RANKS, _CROWD_RANKS = 32, 8
_IMPORTS = {OWN: "import pscompy", "numpy": "import numpy", "mpi4py": "from mpi4py import MPI"}
_ALL_NAMES = {OWN: "from pscompy import *"}
# Label -> how endpoints share, see bench/endpoints.py.
_SHARINGS = {OWN: "dynamic", **{it: it for it in ("shared", "single", "everywhere")}}


# ---- start --------------------------------------------------------------------------------------


def _start(start: Start, library: str, first: str, seconds: float) -> Figures:
    """Start ranks, which import the module `first`."""
    begun = time.perf_counter()
    told = run(start(), lambda folder: [_PROGRAM, folder, library, first])
    past = max(rank["past_barrier"] for rank in told)
    return {
        "launch to past the first barrier": past - begun,
        "PSS per rank": statistics.mean(rank["pss_kib"] for rank in told) / 1024,
    }


def _starts(first: str) -> dict[str, Launch]:
    launches: dict[str, Launch] = {
        OWN: partial(_start, partial(peers.pscompy, _START_RANKS), OWN, first)
    }
    for peer in MPI:
        launches[peer] = partial(_start, partial(peers.mpi, peer, _START_RANKS), "mpi4py", first)
    return launches


def _startup() -> Group:
    cells = (
        Cell("launch to past the first barrier", "s"),
        Cell("PSS per rank", "MiB", 1.0, ("openmpi",)),
    )
    launches = _starts("")
    return Group("startup", f"start of {_START_RANKS} ranks", cells, launches)


def _startup_with_numpy() -> Group:
    cells = (Cell("launch to past the first barrier", "s", 1.25), Cell("PSS per rank", "MiB"))
    launches = _starts("numpy")
    title = f"start of {_START_RANKS} ranks that import numpy"
    return Group("startup-numpy", title, cells, launches)


def _importing() -> Group:
    cells = (
        Cell("import, above bare Python", "ms", 25.0, ()),
        Cell("every public name, above bare Python", "ms", None, ()),
    )
    launches = {name: partial(_import, name) for name in _IMPORTS}
    return Group("import", "importing", cells, launches)


def _import(name: str, seconds: float) -> Figures:
    """Start bare Python and Python with an import in turn, for about `seconds` seconds in all."""
    folder = peers.environment(MPI[0]) if name == "mpi4py" else None
    if isinstance(folder, NotMeasured):
        raise folder
    python = f"{folder}/bin/python" if folder else sys.executable
    programs = [_IMPORTS[name], *([_ALL_NAMES[name]] if name in _ALL_NAMES else [])]
    taken: dict[str, list[float]] = {program: [] for program in ("pass", *programs)}
    for program in taken:
        _python(python, program)  # warms up the caches
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or not taken["pass"]:
        for program, times in taken.items():
            times.append(_python(python, program))
    bare, *loaded = (statistics.median(times) * 1e3 for times in taken.values())
    names = ("import, above bare Python", "every public name, above bare Python")
    return {cell: ms - bare for cell, ms in zip(names, loaded, strict=False)}


def _python(python: str, program: str) -> float:
    start = time.perf_counter()
    subprocess.run([python, "-c", program], check=True, env=peers.variables(), cwd=peers.ROOT)
    return time.perf_counter() - start


# ---- ranks and threads --------------------------------------------------------------------------


def _crowd() -> Group:
    title = f"{_CROWD_RANKS} ranks on 2 cores, all to all"
    launches = ranks_against_mpi(_CROWD_RANKS, many.all_to_all)
    return Group("all-to-all", title, (Cell(many.RATE, "M/s", 1.0),), launches)


def _endpoints() -> Group:
    """Threads with endpoints of their own, against endpoints that share, a World for each thread,
    and mpi4py with MPI_THREAD_MULTIPLE."""
    start = partial(peers.pscompy, 2)
    rows = (
        *(
            Cell(many.by_threads(number), "M/s", 2.0, MPI, number, "threads")
            for number in many.THREADS
        ),
        Cell(endpoints.EXCHANGE, "MB/s", 1.2, ("single",)),
        Cell(endpoints.ALONE, "M/s", None, ("single",)),
        Cell(endpoints.LOOP, "M/s", 1.8, ("single",)),
        Cell(endpoints.ONE_LINE, "M/s", None, ("single",)),
        Cell(endpoints.BESIDE, "M/s", None, ("single",)),
        Cell(endpoints.LONGEST, "µs", None, ("single",)),
        Cell(endpoints.LOCKED, "µs", None, ("single",)),
        Cell(endpoints.MEMORY, "MiB", 1 / 3, ("everywhere",)),
    )
    launches = {
        label: prepared(endpoints.build, ranks(start, "none", endpoints.endpoints, sharing))
        for label, sharing in _SHARINGS.items()
    }
    launches |= {it: ranks(partial(peers.mpi, it, 2), "mpi4py", endpoints.messages) for it in MPI}
    return Group("endpoints", "threads with endpoints", rows, launches)


def groups() -> tuple[Group, ...]:
    return _startup(), _startup_with_numpy(), _importing(), _crowd(), _endpoints()
