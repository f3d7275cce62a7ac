"""Reads the table in functions.py: a row for each function, its arguments, and the symbols that the
library exports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pscompy_mpi.functions import KINDS_TEXT, RESULTS, TABLE


class Kind(NamedTuple):
    """The C types of an argument in the form with int and in that with MPI_Count, and its code."""

    narrow: str
    wide: str
    code: str
    result: str  # the C type of what a result points to, if that is not `narrow`


class Argument(NamedTuple):
    name: str
    kind: Kind
    way: str  # "": a value; "*": a result; "&": both
    length: str | None  # of an array: how many, in C; None: not an array

    @property
    def two(self) -> bool:
        return self.kind.narrow != self.kind.wide


class Row(NamedTuple):
    name: str  # without MPI_
    where: str
    room: str
    arguments: tuple[Argument, ...] = ()
    returns: str = "int"
    of: str = ""  # an alias: the function's name

    @property
    def two(self) -> bool:
        """Whether there is also a form with MPI_Count."""
        return any(it.two for it in self.arguments)

    @property
    def stems(self) -> list[str]:
        """The names of the forms with int."""
        if self.where != "collective":
            return [self.name]
        return [self.name, f"I{self.name[0].lower()}{self.name[1:]}", f"{self.name}_init"]

    @property
    def symbols(self) -> list[str]:
        """The symbols that the library exports."""
        if self.where == "missing":
            return []
        ends = ("", "_c") if self.two else ("",)
        return [f"MPI_{stem}{end}" for stem in self.stems for end in ends]


def rows() -> Iterator[Row]:
    """The rows of TABLE, one for each function."""
    where = room = ""
    for line in TABLE.splitlines():
        if line.startswith("== "):
            where, room = f"{line[3:]} ".split(" ")[:2]
        else:
            yield from read(line, where, room)


def read(line: str, where: str, room: str) -> Iterator[Row]:
    """The rows that a line of TABLE describes."""
    names, _, rest = line.partition(":")
    if where == "alias" and names:
        yield Row(names, where, room, of=rest.strip())
        return
    rest, _, returns = rest.partition("->")
    arguments = tuple(read_arguments(rest))
    for name in names.split():
        yield Row(name, where, room, arguments, returns.strip() or "int")


def read_arguments(text: str) -> Iterator[Argument]:
    seen: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"(\w+|\.\.\.)([*&]?)(?:\[(.*)\])?", part)
        if match is None or match[1] not in KINDS:
            raise ValueError(f"no argument: {part!r}")
        word = match[1]
        seen[word] = seen.get(word, 0) + 1
        name = word if seen[word] == 1 else f"{word}{seen[word]}"
        yield Argument(name, KINDS[word], match[2], match[3])


def read_kinds(text: str) -> Iterator[tuple[str, Kind]]:
    for line in text.strip().splitlines():
        words, types, code = (it.strip() for it in line.split(" | "))
        narrow, _, wide = types.partition(", ")
        for word in words.split():
            yield word, Kind(narrow, wide or narrow, code, RESULTS.get(word, narrow))


KINDS = dict(read_kinds(KINDS_TEXT))
ROWS = tuple(rows())
