"""The program `pscompy`: runs a sub-command and reports errors in one line.

A sub-command is an entry point of the group "pscompy.commands" that names a
function `main(arguments: list[str]) -> int` (the exit code). `pscompy --help`
prints the first paragraph of its docstring.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pscompy import __version__
from pscompy.config.standard_files import open_standard_files
from pscompy.errors import ConfigError, PscomError

if TYPE_CHECKING:
    from importlib import metadata

GROUP = "pscompy.commands"
# Built-in commands are found without a search of the installed packages and cannot be replaced.
BUILT_IN = {
    "endpoint-model": "pscompy.cli.endpoint_model.command",
    "info": "pscompy.cli.info",
    "perf": "pscompy.cli.perf",
    "run": "pscompy.launch.command",
}
LAST = ("endpoint-model",)  # listed behind the commands that move messages
OK, FAILED, USAGE = 0, 1, 2

Command = Callable[[list[str]], int]
Loader = Callable[[], Command]


class UsageError(Exception):
    """The command line is wrong; the text says how."""


class _Output:
    """Takes the place of sys.stdout within a `with` block, and raises the error of a write at its
    end, also if the writer has dropped it, as argparse does. Does nothing if stdout was closed when
    the program started."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self._stream: Any = sys.stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return int(self._noting(self._stream.write, text))

    def flush(self) -> None:
        self._noting(self._stream.flush)

    def _noting(self, call: Callable[..., Any], *arguments: str) -> Any:
        try:
            return call(*arguments)
        except OSError as error:
            self.error = error
            raise

    def __enter__(self) -> _Output:
        if self._stream is not None:
            sys.stdout = self
        return self

    def __exit__(self, *raised: object) -> None:
        if self._stream is None:
            return
        sys.stdout = self._stream
        with contextlib.suppress(OSError):
            self.flush()
        if self.error is not None:
            # Without this, the flush at exit would fail, too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            raise self.error


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    warnings.formatwarning = _format_warning
    open_standard_files()
    output = _Output()
    try:
        with output:
            return _dispatch(sys.argv[1:] if arguments is None else arguments)
    except (UsageError, ConfigError) as error:
        return _complain(error, USAGE)
    except PscomError as error:
        return _complain(error, FAILED)
    except OSError as error:
        if error is not output.error:
            raise
        if not isinstance(error, BrokenPipeError):  # raised if the reader is gone (`| head`)
            _complain(f"standard output cannot be written: {error.strerror}", FAILED)
        return FAILED
    except KeyboardInterrupt:
        return 130


def _dispatch(arguments: list[str]) -> int:
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
        return OK
    if name in ("-V", "--version"):
        print(f"pscompy {__version__}")
        return OK
    return _find(name)()(rest)


def _commands() -> dict[str, Loader]:
    """Return all sub-commands by name, sorted, LAST behind the others; none is imported yet."""
    # imported late: the import would add 10 ms to every `pscompy run`
    from importlib import metadata

    found = {entry.name: partial(_load, entry) for entry in metadata.entry_points(group=GROUP)}
    own = {name: partial(_load_own, module) for name, module in BUILT_IN.items()}
    return dict(sorted({**found, **own}.items(), key=lambda it: (it[0] in LAST, it[0])))


def _find(name: str) -> Loader:
    if name in BUILT_IN:
        return partial(_load_own, BUILT_IN[name])
    commands = _commands()
    if name in commands:
        return commands[name]
    if name.startswith("-"):
        raise UsageError(f"unknown option {name} (pscompy --help)")
    import difflib

    close = difflib.get_close_matches(name, commands, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(commands)}"
    raise UsageError(f"no command {name!r} ({hint})")


def _load_own(module: str) -> Command:
    function: Command = importlib.import_module(module).main
    return function


def _load(entry: metadata.EntryPoint) -> Command:
    from pscompy.discovery.sources import load_entry  # imported late: only plug-ins need it

    function: Command = load_entry(entry)
    return function


def _help() -> str:
    rows = "\n".join(_row(name, _summary(load)) for name, load in _commands().items())
    return (
        "usage: pscompy COMMAND [ARGUMENTS]\n\n"
        f"Message passing for Python over many kinds of network.\n\ncommands:\n{rows}\n\n"
        "options:\n  -h, --help     show this text\n  -V, --version  show the version\n\n"
        "pscompy COMMAND --help describes a command."
    )


def _row(name: str, summary: str) -> str:
    import textwrap

    return textwrap.fill(f"  {name:14} {summary}", 100, subsequent_indent=" " * 17)


def _summary(load: Loader) -> str:
    try:
        documentation = (load().__doc__ or "").strip()
    except (ImportError, AttributeError, PscomError) as error:
        return f"(cannot be loaded: {error})"
    return " ".join(documentation.partition("\n\n")[0].split())


def _complain(error: Exception | str, code: int) -> int:
    print(f"pscompy: error: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: object = None
) -> str:
    from pscompy.config.config import ConfigWarning

    if issubclass(category, ConfigWarning):
        return f"pscompy: warning: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"
