"""The bootstrap without a launcher: rank 0 of 1."""

from __future__ import annotations

import os

from pscompy.world.bootstrap.launcher import Unreported


class Single(Unreported):
    """Implements `Bootstrap` for a process that is alone in its job."""

    rank = 0
    size = 1
    live = False  # there is no other rank that could see a value at once

    def __init__(self) -> None:
        self.job_id = f"single-{os.getpid()}-{os.urandom(4).hex()}"
        self._values: dict[str, str] = {}

    def put(self, key: str, value: str) -> None:
        self._values[key] = value

    def get(self, key: str, rank: int) -> str:
        return self._values[key]

    def barrier(self, timeout: float | None = None) -> None:
        pass

    def finalize(self, blames: int | None = None) -> None:
        pass

    def abort(self, code: int) -> None:
        pass
