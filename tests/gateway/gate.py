"""Where ranks wait until all gateways know all of them: what they send then can take any."""

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


def wait(world: pscompy.World, *paths: str) -> None:
    """In a rank; at no gate if none is given."""
    for path in paths:
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        while not select.select([pipe], [], [], 0.01)[0]:
            world.session.progress()  # it makes itself known at gateways that have come up
        os.read(pipe, 1)


class Gate:
    """The test's side."""

    def __init__(self, machine: Machine, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._machine = machine
        self._pipe = os.open(path, os.O_RDWR)

    def let_through(self, ranks: int) -> None:
        """As soon as each gateway knows so many of them."""
        deadline = time.monotonic() + SECONDS
        for number in self._machine.gateways:
            while self._there(number) < ranks:
                assert time.monotonic() < deadline, f"not all ranks came to gateway {number}"
        os.write(self._pipe, bytes(ranks))

    def _there(self, number: int) -> int:
        return sum(bool(it["node"]) for it in self._machine.status(number)["peers"])

    def close(self) -> None:
        os.close(self._pipe)
