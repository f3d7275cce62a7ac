"""The log: PSP_DEBUG, PSP_DEBUG_OUT and PSP_DEBUG_TIMING, through `logging`.

Everything goes to the logger "pscompy" and those below it. A program that has
set up `logging` gets the lines by its own handlers; otherwise, or where
PSP_DEBUG_OUT or PSP_DEBUG_TIMING asks for it, they are written by a handler
of ours. What a switch such as PSP_DEBUG_STATS asked for is logged with
`notice` and passes every level.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from pscompy.config import Config
from pscompy.errors import ConfigError

VERBOSE = 7
TRACE = 5
NOTICE = 60

# By PSP_DEBUG; higher values mean the last one.
_LEVELS = (
    logging.CRITICAL,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.DEBUG,
    VERBOSE,
    TRACE,
)

logger = logging.getLogger("pscompy")

# Generic for the type checker only (until Python 3.11).
if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler


class Target(NamedTuple):
    """Where the core's own lines go; see psc_worker_log_to."""

    fd: int
    level: int


class _Handler(_StreamHandler):
    """The handler that `configure` made, to be told from the program's own."""

    def close(self) -> None:
        if self.stream.fileno() > 2:
            self.stream.close()
        super().close()


class _Formatter(logging.Formatter):
    """A line: the time as PSP_DEBUG_TIMING says, process, level, message."""

    def __init__(self, timing: str) -> None:
        super().__init__()
        self._stamp = _STAMPS[timing]
        self._before = time.time()

    def format(self, record: logging.LogRecord) -> str:
        stamp = self._stamp(record.created, self._before)
        self._before = record.created
        level = f"{record.levelname.lower()}: " if record.levelno < NOTICE else ""
        line = f"{stamp}pscompy[{record.process}] {level}{record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


_STAMPS: dict[str, Callable[[float, float], str]] = {
    "off": lambda now, before: "",
    "us": lambda now, before: f"{now * 1e6:.0f} ",
    "date": lambda now, before: f"{datetime.fromtimestamp(now):%Y-%m-%d %H:%M:%S.%f} ",
    "wall": lambda now, before: f"{datetime.fromtimestamp(now):%H:%M:%S.%f} ",
    "delta": lambda now, before: f"{(now - before) * 1e6:+.0f}us ",
}


def configure(config: Config) -> Target:
    """Set the log up as the configuration says, and log what PSP_DEBUG_VERSION
    and PSP_DEBUG_PARAM ask for. The log is one for the process: where sessions
    differ the last one that says something holds.

    ConfigError: PSP_DEBUG_OUT cannot be written.
    """
    logging.addLevelName(VERBOSE, "VERBOSE")
    logging.addLevelName(TRACE, "TRACE")
    level = min(config["DEBUG"], len(_LEVELS) - 1)
    if config.origin("DEBUG") != "default" or logger.level == logging.NOTSET:
        logger.setLevel(_LEVELS[level])
    if _wants_handler(config):
        _install(config)
    _report(config)
    return Target(_descriptor(), level)


def notice(message: str, *args: object) -> None:
    """Log what a PSP_DEBUG_ switch asked for, whatever PSP_DEBUG is."""
    logger.log(NOTICE, message, *args)


def _wants_handler(config: Config) -> bool:
    asked = any(config.origin(name) != "default" for name in ("DEBUG_OUT", "DEBUG_TIMING"))
    return asked or not logger.hasHandlers()


def _install(config: Config) -> None:
    """Replace our handler; the program's own handlers get nothing any more."""
    target = config.expand(config["DEBUG_OUT"])
    try:
        stream = _file(target) if target else _stderr()
    except OSError as error:
        raise ConfigError(
            f"PSP_DEBUG_OUT: {target!r} must be a file that can be written: {error.strerror}",
            name="PSP_DEBUG_OUT",
            value=target,
            allowed="a file that can be written",
        ) from error
    for old in [handler for handler in logger.handlers if isinstance(handler, _Handler)]:
        logger.removeHandler(old)
        old.close()
    handler = _Handler(stream)
    handler.setFormatter(_Formatter(config["DEBUG_TIMING"]))
    logger.addHandler(handler)
    logger.propagate = False


def _file(path: str) -> TextIO:
    return Path(path).open("a", buffering=1)


def _stderr() -> TextIO:
    """A stream of our own on descriptor 2, which stays when sys.stderr goes."""
    return os.fdopen(2, "w", buffering=1, closefd=False)


def _descriptor() -> int:
    for handler in logger.handlers:
        if isinstance(handler, _Handler):
            return handler.stream.fileno()
    return 2


def _report(config: Config) -> None:
    if config["DEBUG_VERSION"]:
        from pscompy import __version__

        notice("version %s", __version__)
    for row in config.rows():
        if config["DEBUG_PARAM"] > (0 if row.changed else 1):
            notice("%s=%s (%s)", row.name, row.value, row.origin)
