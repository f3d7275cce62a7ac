"""The argument parser of commands, and parsers for some kinds of arguments.

A wrong argument is reported in one line, with exit code 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NoReturn

from pscompy.config.parsers import seconds


class ArgumentParser(argparse.ArgumentParser):
    """The parser of argparse, without the usage text before every error."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def positive(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")


def duration(text: str) -> float:
    """Parse a positive time in seconds, written as in variables: 0.5, 200ms."""
    with suppress(ValueError):
        value: float = seconds(text)
        if 0 < value < inf:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is no time such as 0.5 or 200ms")


def picture(text: str) -> Path:
    """Parse the path of a picture, which must have the suffix .png, .svg or .pdf."""
    path = Path(text)
    if path.suffix in (".png", ".svg", ".pdf"):
        return path
    raise argparse.ArgumentTypeError(f"{text!r} does not end in .png, .svg or .pdf")


def words(text: str, allowed: Collection[str]) -> tuple[str, ...]:
    """Parse words that are separated by commas, all of them in `allowed`."""
    found = tuple(text.split(","))
    if set(found) <= set(allowed):
        return found
    raise argparse.ArgumentTypeError(f"{text!r} is not some of {','.join(allowed)}")
