"""The log: PSP_DEBUG, PSP_DEBUG_OUT and PSP_DEBUG_TIMING, through `logging`.

All lines go to the logger "pscompy" and to the loggers below it. If the program has set up
`logging`, its own handlers get them; otherwise, or if PSP_DEBUG_OUT or PSP_DEBUG_TIMING is set,
`configure` installs a handler that writes them. A line that a switch such as PSP_DEBUG_STATS asks
for is logged by `notice`, whose level is above all others.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from pscompy.config.config import Config
from pscompy.errors import ConfigError

# Levels in addition to those of `logging`: two below DEBUG (10), one above CRITICAL (50).
VERBOSE, TRACE, NOTICE = 7, 5, 60
logging.addLevelName(VERBOSE, "VERBOSE")
logging.addLevelName(TRACE, "TRACE")

# The level of `logging` for each value of PSP_DEBUG, from 0 on.
LEVELS = (
    logging.CRITICAL,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.DEBUG,
    VERBOSE,
    TRACE,
)

logger = logging.getLogger("pscompy")

# Reentrant, because a finalizer may open a session while its thread opens another.
_lock = threading.RLock()
_handler: logging.Handler | None = None  # the handler that `configure` has installed


class _Formatter(logging.Formatter):
    """Formats a log line: the time as PSP_DEBUG_TIMING says, process, level, message."""

    def __init__(self, timing: str) -> None:
        super().__init__()
        self._stamp = _STAMPS[timing]
        self._start = self._before = time.time()

    def format(self, record: logging.LogRecord) -> str:
        stamp = self._stamp(record.created, self._start, self._before)
        self._before = record.created
        level = f"{record.levelname.lower()}: " if record.levelno < NOTICE else ""
        line = f"{stamp}pscompy[{record.process}] {level}{record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


# PSP_DEBUG_TIMING -> a function that writes the time stamp as pscom does, from the times of this
# line, of the start of the log and of the line before.
_STAMPS: dict[str, Callable[[float, float, float], str]] = {
    "0": lambda now, start, before: "",
    "1": lambda now, start, before: _seconds(now - start),
    "date": lambda now, start, before: (
        f"{time.strftime('%Y-%m-%d_%H:%M:%S', time.localtime(now))}.{int(now % 1 * 1e6):06} "
    ),
    "wall": lambda now, start, before: _seconds(now),
    "delta": lambda now, start, before: _seconds(now - before),
}
_STAMPS |= {"off": _STAMPS["0"], "us": _STAMPS["1"]}


def _seconds(seconds: float) -> str:
    return f"{max(0.0, seconds):011.6f} "


def configure(config: Config) -> int:
    """Set up the log, and log the lines that PSP_DEBUG_VERSION and PSP_DEBUG_PARAM request.

    All sessions of a process share one log: if their configurations differ, the latest one that
    sets a variable wins. Returns PSP_DEBUG.

    Raises `ConfigError` if the file PSP_DEBUG_OUT cannot be written.
    """
    level = int(config["DEBUG"])
    with _lock:
        if config.origin("DEBUG") != "default" or logger.level == logging.NOTSET:
            logger.setLevel(LEVELS[level])
        if _wants_handler(config):
            _install(config)
    _report(config)
    return level


def notice(message: str, *args: object) -> None:
    """Log a line that a PSP_DEBUG_ switch requests, regardless of PSP_DEBUG."""
    logger.log(NOTICE, message, *args)


def _wants_handler(config: Config) -> bool:
    asked = any(config.origin(name) != "default" for name in ("DEBUG_OUT", "DEBUG_TIMING"))
    return asked or not logger.hasHandlers()


def _install(config: Config) -> None:
    """Replace the handler of an earlier call; the program's own handlers get no more lines."""
    global _handler
    made = _make_handler(config.expand(config["DEBUG_OUT"]))
    made.setFormatter(_Formatter(config["DEBUG_TIMING"]))
    if _handler is not None:
        logger.removeHandler(_handler)
        _handler.close()
    _handler = made
    logger.addHandler(made)
    logger.propagate = False


def _make_handler(target: str) -> logging.Handler:
    """Return a handler that writes to the file `target`, or, if that is empty, to descriptor 2,
    which remains open if sys.stderr is replaced. Raises `ConfigError` if the file cannot be
    opened."""
    if not target:
        return logging.StreamHandler(os.fdopen(2, "w", buffering=1, closefd=False))
    try:
        return logging.FileHandler(target)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"PSP_DEBUG_OUT: {target!r} must be a file that can be written: {reason}",
            name="PSP_DEBUG_OUT",
            value=target,
            allowed="a file that can be written",
        ) from error


def _report(config: Config) -> None:
    if config["DEBUG_VERSION"]:
        from pscompy import __version__

        notice("version %s", __version__)
    wanted = config["DEBUG_PARAM"]
    for row in config.rows() if wanted else ():
        if row.changed or wanted > 1:
            notice("%s=%s (%s)", row.name, row.value, row.origin)
