"""A gate where ranks wait until every gateway knows every rank, so that messages may take any
gateway.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pscompy

if TYPE_CHECKING:
    from namespaces import Machine

SECONDS = 300
STEP = 0.05  # seconds between questions to a gateway, which take the processor from the ranks


def wait(world: pscompy.World, *paths: str) -> None:
    """Wait at the gate in a rank; returns at once if no path is given."""
    for path in paths:
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        while not select.select([pipe], [], [], 0.01)[0]:
            world.session.progress()  # progress registers this rank with gateways that have started
        os.read(pipe, 1)


class Gate:
    """The test's side of the gate."""

    def __init__(self, machine: Machine, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._machine = machine
        self._pipe = os.open(path, os.O_RDWR)

    def let_through(self, ranks: int) -> None:
        """Open the gate as soon as each gateway knows `ranks` ranks."""
        deadline = time.monotonic() + SECONDS
        for number in self._machine.gateways:
            while self._there(number) < ranks:
                assert time.monotonic() < deadline, f"not all ranks came to gateway {number}"
                time.sleep(STEP)
        os.write(self._pipe, bytes(ranks))

    def _there(self, number: int) -> int:
        return sum(bool(it["node"]) for it in self._machine.status(number)["peers"])

    def close(self) -> None:
        os.close(self._pipe)
