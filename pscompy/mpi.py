"""MPI on pscompy, for programs of mpi4py: import this module before mpi4py.

    import pscompy.mpi
    from mpi4py import MPI

    python -m pscompy.mpi program.py [argument ...]     # runs an unchanged program so
    python -m pscompy.mpi -m module [argument ...]

`pscompy run --mpi` does the same for all ranks of a job, also for programs that are not Python.
Raises `ImportError` if another MPI is loaded already.
"""

from __future__ import annotations

import sys

from pscompy_mpi import loading

loading.load()

if __name__ == "__main__":
    loading.run(sys.argv[1:])
