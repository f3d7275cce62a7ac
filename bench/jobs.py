"""Groups that are measured over whole programs: their start, and many ranks at once."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import peers
from bench.native import NotMeasured
from bench.rows import MPI, OWN, Cell, Figures, Group, Launch

_HERE = Path(__file__).parent
_SECONDS = 60.0
_START_RANKS, _CROWD_RANKS = 32, 8
_IMPORTS = {OWN: "import pscompy", "numpy": "import numpy", "mpi4py": "from mpi4py import MPI"}
_ALL_NAMES = {OWN: "from pscompy import *"}


# ---- start --------------------------------------------------------------------------------------


def _start(start: Callable[[], peers.Start], library: str, seconds: float) -> Figures:
    return _timed_start(start(), library)


def _start_with_numpy(start: Callable[[], peers.Start], library: str, seconds: float) -> Figures:
    return _timed_start(start(), library, "numpy")


def _timed_start(start: peers.Start, *arguments: str) -> Figures:
    begun = time.perf_counter()
    told = run_ranks(start, "startup.py", *arguments)
    past = max(rank["past_barrier"] for rank in told)
    return {
        "launch to past the first barrier": past - begun,
        "PSS per rank": statistics.mean(rank["pss_kib"] for rank in told) / 1024,
    }


def _startup() -> Group:
    cells = (
        Cell("launch to past the first barrier", "s"),
        Cell("PSS per rank", "MiB", 1.0, ("openmpi",)),
    )
    launches = against_mpi(_start, _START_RANKS)
    return Group("startup", f"start of {_START_RANKS} ranks", cells, launches)


def _startup_with_numpy() -> Group:
    cells = (Cell("launch to past the first barrier", "s", 1.25), Cell("PSS per rank", "MiB"))
    launches = against_mpi(_start_with_numpy, _START_RANKS)
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


# ---- many ranks ---------------------------------------------------------------------------------


def _crowd() -> Group:
    cells = (Cell("messages of 1 KiB", "M/s", 1.0),)
    title = f"{_CROWD_RANKS} ranks on 2 cores, all to all"
    return Group("all-to-all", title, cells, against_mpi(_all_to_all, _CROWD_RANKS))


def _all_to_all(start: Callable[[], peers.Start], library: str, seconds: float) -> Figures:
    told = run_ranks(start(), "alltoall.py", library, str(seconds))
    return {"messages of 1 KiB": told[0]["messages_per_second"] / 1e6}


# ---- programs -----------------------------------------------------------------------------------


def against_mpi(
    measure: Callable[[Callable[[], peers.Start], str, float], Figures], ranks: int
) -> dict[str, Launch]:
    launches: dict[str, Launch] = {
        peer: partial(measure, partial(peers.mpi, peer, ranks), "mpi4py") for peer in MPI
    }
    return {OWN: partial(measure, partial(peers.pscompy, ranks), OWN), **launches}


def run_ranks(start: peers.Start, program: str, *arguments: str) -> list[dict[str, float]]:
    """Run the ranks of a program and return what each wrote as JSON into a file of its own."""
    with tempfile.TemporaryDirectory(prefix="pscompy-bench-") as folder:
        command = [*start.command, str(_HERE / program), folder, *arguments]
        try:
            ended = subprocess.run(
                command, stdout=sys.stderr, env=start.environment, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"{program} has not ended after {_SECONDS:.0f} s") from None
        if ended.returncode:
            raise NotMeasured(f"{program} has ended with {ended.returncode}, see above")
        return [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]


def groups() -> tuple[Group, ...]:
    return _startup(), _startup_with_numpy(), _importing(), _crowd()
