"""A pool of mpi4py with small tasks: FOLDER. Only the rank that submits them writes its time."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

TASKS = 10_000
NAME = f"map of {TASKS:,} small tasks"


def successor(number: int) -> int:
    return number + 1


def main(folder: str) -> None:
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as pool:
        pool.submit(successor, 0).result()
        start = time.perf_counter()
        total = sum(pool.map(successor, range(TASKS)))
        taken = time.perf_counter() - start
    if total != TASKS * (TASKS + 1) // 2:
        raise SystemExit("the pool has returned wrong results")
    (Path(folder) / "000").write_text(json.dumps({NAME: taken}))


if __name__ == "__main__":
    main(*sys.argv[1:])
