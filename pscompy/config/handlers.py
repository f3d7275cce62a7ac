"""Our own handler of `logging`, for programs that have set up none: see `logs`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pscompy.config.config import Config
from pscompy.config.logs import NOTICE, TRACE, VERBOSE
from pscompy.errors import ConfigError

logger = logging.getLogger("pscompy")

# Generic for the type checker only (until Python 3.11).
if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler


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


def configure(config: Config, level: int) -> int:
    """What `logs.configure` does once `logging` is there; gives the descriptor of the log."""
    logging.addLevelName(VERBOSE, "VERBOSE")
    logging.addLevelName(TRACE, "TRACE")
    if config.origin("DEBUG") != "default" or logger.level == logging.NOTSET:
        logger.setLevel(level)
    if _wants_handler(config):
        _install(config)
    _report(config)
    return _descriptor()


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

        logger.log(NOTICE, "version %s", __version__)
    for row in config.rows():
        if config["DEBUG_PARAM"] > (0 if row.changed else 1):
            logger.log(NOTICE, "%s=%s (%s)", row.name, row.value, row.origin)
