"""The log: PSP_DEBUG, PSP_DEBUG_OUT and PSP_DEBUG_TIMING, through `logging`.

Everything goes to the logger "pscompy" and those below it. A program that has set up `logging`
gets the lines by its own handlers; otherwise, or where PSP_DEBUG_OUT or PSP_DEBUG_TIMING asks for
it, they are written by a handler of ours (`handlers`). What a switch such as PSP_DEBUG_STATS asked
for is logged with `notice` and passes every level.

`logging` itself, 3 ms, is loaded when the first line is due. Until then nobody can have set it up,
so that PSP_DEBUG alone decides which line that is. Loading takes a descriptor: in a process that
has none left, the line goes to stderr as it is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial

from pscompy.config.config import Config
from pscompy.config.values import Value

# The levels of `logging`, and ours between and beyond them.
CRITICAL, ERROR, WARNING, INFO, DEBUG = 50, 40, 30, 20, 10
VERBOSE = 7
TRACE = 5
NOTICE = 60

# By PSP_DEBUG; higher values mean the last one.
LEVELS = (CRITICAL, ERROR, WARNING, INFO, DEBUG, VERBOSE, TRACE)

_ASK = ("DEBUG_OUT", "DEBUG_TIMING", "DEBUG_VERSION", "DEBUG_PARAM")  # for a handler, or a line


class Target(Value):
    """Where the core's own lines go; see psc_worker_log_to."""

    fd: int
    level: int


class _Waiting:
    """A configuration of the log that takes effect when `logging` is there, and lines that were
    said before there was any: while the first session reads its own."""

    def __init__(self) -> None:
        self.config: Config | None = None
        self.level = NOTICE
        self.lines: list[Callable[[], None]] | None = []
        self.lock = threading.Lock()

    def put(self, config: Config) -> None:
        """Where sessions differ, the last one that says something holds."""
        if self.config is None or config.origin("DEBUG") != "default":
            self.config = config
            self.level = LEVELS[_level(config)]

    def settle(self) -> None:
        with self.lock:
            config, self.config = self.config, None
            if config is not None:
                _apply(config)

    def say_lines(self) -> None:
        lines, self.lines = self.lines, None
        for line in lines or ():
            line()


_waiting = _Waiting()


class Log:
    """What `logging.getLogger(name)` would be."""

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, message: str, *args: object) -> None:
        self.log(DEBUG, message, *args)

    def info(self, message: str, *args: object) -> None:
        self.log(INFO, message, *args)

    def warning(self, message: str, *args: object) -> None:
        self.log(WARNING, message, *args)

    def error(self, message: str, *args: object, error: BaseException | None = None) -> None:
        """`error`: its traceback follows the line."""
        self.log(ERROR, message, *args, error=error)

    def exception(self, message: str, *args: object) -> None:
        """As `error`, of the exception that is being handled."""
        self.log(ERROR, message, *args, error=sys.exc_info()[1])

    def log(
        self, level: int, message: str, *args: object, error: BaseException | None = None
    ) -> None:
        if _waiting.lines is not None:
            _waiting.lines.append(partial(self.log, level, message, *args, error=error))
            return
        if "logging" not in sys.modules and level < _waiting.level:
            return
        try:
            _load()
        except (OSError, ImportError):  # no descriptor is left
            _say_plainly(self._name, message, args, error)
            return
        import logging

        logging.getLogger(self._name).log(level, message, *args, exc_info=error, stacklevel=3)


logger = Log("pscompy")


def _load() -> None:
    """Load `logging`, and set it up as the first session has said."""
    import logging  # noqa: F401

    _waiting.settle()


def _say_plainly(
    name: str, message: str, args: tuple[object, ...], error: BaseException | None
) -> None:
    cause = "" if error is None else f" ({type(error).__name__}: {error})"
    with contextlib.suppress(OSError):
        os.write(2, f"{name}: {message % args}{cause}\n".encode())


def configure(config: Config) -> Target:
    """Set the log up as the configuration says, and log what PSP_DEBUG_VERSION
    and PSP_DEBUG_PARAM ask for. The log is one for the process: where sessions
    differ the last one that says something holds.

    ConfigError: PSP_DEBUG_OUT cannot be written.
    """
    level = _level(config)
    if "logging" in sys.modules or any(config.origin(name) != "default" for name in _ASK):
        _waiting.settle()
        descriptor = _apply(config)
    else:
        _waiting.put(config)
        descriptor = 2
    _waiting.say_lines()
    return Target(descriptor, level)


def notice(message: str, *args: object) -> None:
    """Log what a PSP_DEBUG_ switch asked for, whatever PSP_DEBUG is."""
    logger.log(NOTICE, message, *args)


def _level(config: Config) -> int:
    wanted: int = config["DEBUG"]
    return min(wanted, len(LEVELS) - 1)


def _apply(config: Config) -> int:
    from pscompy.config import handlers

    return handlers.configure(config, LEVELS[_level(config)])
