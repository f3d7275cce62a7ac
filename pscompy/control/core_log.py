"""Log lines of the C core, which it writes into a pipe: "<level> <text>\\n"."""

from __future__ import annotations

import logging
import os
from typing import Any

from pscompy.config.logs import LEVELS
from pscompy.core import lib

logger = logging.getLogger("pscompy.core")

CORE_LEVELS = LEVELS[:5]  # the core has no levels below DEBUG


class CoreLog:
    """The pipe into which the core writes log lines; `read` hands them to `logging`."""

    def __init__(self, worker: Any, level: int) -> None:
        """Have the worker write its log lines of up to this level into a new pipe."""
        self.fd, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._open = True
        self._rest = b""  # the beginning of an incomplete line
        lib.psc_worker_log_to(worker, self._write_end, level)

    def read(self) -> None:
        """Hand the lines that are in the pipe to `logging`."""
        if not self._open:
            return
        try:
            while data := os.read(self.fd, 1 << 16):
                self._rest += data
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            level, _, text = line.decode("utf-8", "replace").partition(" ")
            logger.log(_log_level(level), "%s", text)

    def close(self) -> None:
        """Close the pipe. Idempotent."""
        if self._open:
            self._open = False
            os.close(self.fd)
            os.close(self._write_end)


def _log_level(level: str) -> int:
    number = int(level) if level.isdecimal() else len(CORE_LEVELS)
    return CORE_LEVELS[min(number, len(CORE_LEVELS) - 1)]
