"""A rank that only starts: FOLDER LIBRARY [numpy]. It imports nothing else."""
# ruff: noqa: PTH118, PTH123

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable


def main(folder: str, library: str, first: str = "") -> None:
    if first == "numpy":
        import numpy  # noqa: F401
    if library == "pscompy":
        import pscompy

        with pscompy.World() as world:
            _tell(folder, world.rank, world.barrier)
    else:
        from mpi4py import MPI

        _tell(folder, MPI.COMM_WORLD.rank, MPI.COMM_WORLD.Barrier)


def _tell(folder: str, rank: int, barrier: Callable[[], object]) -> None:
    """The time at which this rank left the barrier, and its memory while all ranks existed."""
    barrier()
    past = time.perf_counter()
    barrier()
    with open("/proc/self/smaps_rollup") as rollup:
        pss = next(line.split()[1] for line in rollup if line.startswith("Pss:"))
    barrier()
    with open(os.path.join(folder, f"{rank:03}"), "w") as file:
        file.write(f'{{"past_barrier": {past}, "pss_kib": {pss}}}')


if __name__ == "__main__":
    main(*sys.argv[1:])
