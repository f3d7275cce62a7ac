"""Parsers of variables: convert text with units to values.

A parser raises ValueError for a text that is not allowed; the attribute `allowed` of the parser
completes the sentence "must be ...".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from string import ascii_letters
from typing import Any, NamedTuple

AUTO = -1  # the value of "auto"
INF = 2**63 - 1  # the value of "inf"
LONGEST = 1e6  # seconds; poll(2) takes no timeout that is much longer

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_TRUE = {"1", "yes", "on", "true", "y"}
_FALSE = {"0", "no", "off", "false", "n"}


class Parser(NamedTuple):
    """Converts a variable's text to its value. Raises `ValueError` if the text is not allowed."""

    parse: Callable[[str], Any]
    allowed: str

    def __call__(self, given: str) -> Any:
        return self.parse(given.strip())


def as_number(value: object) -> int:
    """Return a value as psc_setting_t.number: sizes and counts as they are, flags as 0 or 1, times
    in nanoseconds, texts as 0."""
    if isinstance(value, float):
        return round(min(value * 1e9, INF))
    return int(value) if isinstance(value, int) else 0


def size(minimum: int = 0, maximum: int = INF, *, auto: bool = False) -> Parser:
    """Return a parser for a number of bytes, with unit or "inf" (INF), and "auto" (AUTO) if
    allowed."""

    def parse(given: str) -> int:
        if auto and given.lower() == "auto":
            return AUTO
        return _within(_parse_size(given), minimum, maximum)

    return Parser(parse, f"a size such as 4096, 64k or 2M{_describe(minimum, maximum, auto)}")


def integer(minimum: int = 0, maximum: int = INF, *, auto: bool = False) -> Parser:
    """Return a parser for a whole number, "inf" (INF) if `maximum` is INF, "auto" (AUTO) if
    allowed."""

    def parse(given: str) -> int:
        if auto and given.lower() == "auto":
            return AUTO
        if maximum == INF and given.lower() == "inf":
            return INF
        return _within(_parse_digits(given), minimum, maximum)

    return Parser(parse, f"a whole number{_describe(minimum, maximum, auto)}")


def choice(*words: str) -> Parser:
    """Return a parser for one of the given words, in upper or lower case."""

    def parse(given: str) -> str:
        if given.lower() not in words:
            raise ValueError(given)
        return given.lower()

    return Parser(parse, f"one of {', '.join(words)}")


def _parse_size(given: str) -> int:
    if given.lower() == "inf":
        return INF
    digits, word = _split_unit(given)
    unit = _UNITS.get(word.removesuffix("b").removesuffix("i") if word[-1:] == "b" else word)
    if unit is None or digits.endswith(".") or digits.startswith("."):
        raise ValueError(given)
    value = float(digits) * unit if "." in digits else int(digits) * unit
    if value != int(value):
        raise ValueError(given)
    return int(value)


def _split_unit(given: str) -> tuple[str, str]:
    """Split into a number with at most one point, and the word that follows, in lower case."""
    unspaced = given.rstrip(ascii_letters)
    number, word = unspaced.rstrip(), given[len(unspaced) :].lower()
    if not (number.isascii() and number.replace(".", "", 1).isdecimal()):
        raise ValueError(given)
    return number, word


def _parse_digits(given: str) -> int:
    if not (given.isascii() and given.removeprefix("-").isdecimal()):
        raise ValueError(given)
    return int(given)


def _parse_flag(given: str) -> bool:
    if given.lower() not in _TRUE | _FALSE:
        raise ValueError(given)
    return given.lower() in _TRUE


def _parse_seconds(given: str) -> float:
    if given.lower() == "inf":
        return math.inf
    digits, unit = _split_unit(given)
    if unit not in _SECONDS:
        raise ValueError(given)
    return min(float(digits) * _SECONDS[unit], LONGEST)


def _parse_wait(given: str) -> float:
    return min(_parse_seconds(given), LONGEST)


def _parse_names(given: str) -> tuple[str, ...]:
    """Parse names such as module:Class; the part behind the colon may have dots."""
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    for name in names:
        module, colon, part = name.partition(":")
        if not (module and colon and part):
            raise ValueError(name)
    return names


def _parse_joined(given: str) -> tuple[str, ...]:
    """Parse two to four different names that are joined by +, or an empty text."""
    names = tuple(name.strip() for name in given.split("+")) if given else ()
    if "" in names or len(set(names)) < len(names) or len(names) not in (0, 2, 3, 4):
        raise ValueError(given)
    return names


def _within(value: int, minimum: int, maximum: int) -> int:
    if not minimum <= value <= maximum:
        raise ValueError(value)
    return value


def _describe(minimum: int, maximum: int, auto: bool) -> str:
    limits = f", at least {minimum}" if minimum > 0 else ""
    limits += f", at most {maximum}" if maximum != INF else ", or inf"
    return limits + (", or auto" if auto else "")


nbytes = size(auto=True)
count = integer()
flag = Parser(_parse_flag, "1 or 0 (yes or no, on or off)")
# `seconds` is a time of at most LONGEST, or infinity, for which its user has a rule of its own;
# `wait` is a time for a call that waits, and infinity is LONGEST.
seconds = Parser(_parse_seconds, "a time in seconds, such as 10, 0.5, 200ms or inf")
wait = Parser(_parse_wait, seconds.allowed)
text = Parser(str, "a text")
joined = Parser(_parse_joined, "two to four names, each once, joined by +, such as ib+tcp")
names = Parser(_parse_names, "names such as module:Class, separated by commas")
priority = integer(0, 1000)
