"""The bootstrap inside a program of mpi4py: the ranks of a communicator, under any launcher.

Values are exchanged over a duplicate of the communicator, so that they never match the program's
own messages. MPI is never initialised or finalised here.
"""

from __future__ import annotations

import os
import time
from typing import Any

from pscompy.errors import ConfigError, Timeout
from pscompy.world.bootstrap.launcher import Unreported

_PAUSE = 0.0005  # seconds between tests whether a barrier has completed


class Mpi(Unreported):
    """Implements `Bootstrap` by a communicator (None means COMM_WORLD), collectively over it."""

    live = False

    def __init__(self, comm: Any = None) -> None:
        from mpi4py import MPI

        if MPI.Is_finalized():
            raise ConfigError("MPI is finalised")
        self._comm = (MPI.COMM_WORLD if comm is None else comm).Dup()
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size
        self.job_id: str = self._comm.bcast(os.urandom(16).hex())
        self._values: dict[str, str] = {}
        self._new: dict[str, str] = {}
        self._waiting: Any = None

    def put(self, key: str, value: str) -> None:
        self._new[key] = value

    def get(self, key: str, rank: int) -> str:
        return self._values[key]

    def barrier(self, timeout: float | None = None) -> None:
        """Wait for all ranks, then exchange the values that they have put."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._waiting is None:
            self._waiting = self._comm.Ibarrier()
        while not self._waiting.Test():
            if deadline is not None and time.monotonic() > deadline:
                raise Timeout("not all ranks of the communicator have arrived in time")
            time.sleep(_PAUSE)
        self._waiting = None
        for values in self._comm.allgather(self._new):
            self._values.update(values)
        self._new = {}

    def finalize(self, blames: int | None = None) -> None:
        """Nothing to do: the program finalises MPI."""

    def abort(self, code: int) -> None:
        self._comm.Abort(code)
