"""Makes C of the table in functions.py, and the list for docs/mpi.md.

    python -m pscompy_mpi.generate FOLDER      # writes the files into the folder
    python -m pscompy_mpi.generate --list      # prints what there is and what there is not
    python -m pscompy_mpi.generate --page docs/mpi.md      # writes that between the page's marks

functions.h has the prototypes of all functions that the library exports, but for absent ones.
functions.c has the functions that nobody writes by hand; src/entries.h says what they call.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pscompy_mpi.rows import KINDS, ROWS, Argument, Row

WAYS = {"": ".", "*": ">", "&": "&"}
ARRAY_WAYS = {"": "[", "*": "]", "&": "%"}

INFO = Argument("info", KINDS["info"], "", None)
REQUEST = Argument("request", KINDS["request"], "*", None)
# The forms of a collective, and the arguments that they have besides.
FORMS = (
    ("PSC_MPI_BLOCKING", ()),
    ("PSC_MPI_NONBLOCKING", (REQUEST,)),
    ("PSC_MPI_PERSISTENT", (INFO, REQUEST)),
)

NOTICE = "/* Made by pscompy_mpi/generate.py of the table in functions.py. */\n"
HEADER = f"""{NOTICE}#pragma once

#include "pscompy_mpi/abi_mpich.h"
"""
SOURCE = f"""{NOTICE}#include "pscompy_mpi/src/entries.h"
"""
ABSENT = "#define ABSENT(name) int name(void); int name(void) { return PSC_MPI_ABSENT; }"
WEAK = "#define ABSENT(name) __attribute__((weak)) int name(void) { return PSC_MPI_ABSENT; }"
# Everything else is hidden (-fvisibility=hidden).
PUSH = "#pragma GCC visibility push(default)\n"
POP = "#pragma GCC visibility pop\n"


class Entry(NamedTuple):
    """One function of C: a row in one of its forms."""

    row: Row
    symbol: str
    wide: bool  # with MPI_Count
    form: str  # of a collective: its psc_mpi_form_t
    arguments: tuple[Argument, ...]

    @property
    def prototype(self) -> str:
        declared = [declaration(it, self.wide) for it in self.arguments]
        return wrapped(f"{self.row.returns} {self.symbol}(", declared or ["void"], ")")

    @property
    def names(self) -> list[str]:
        return [it.name for it in self.arguments]

    def calls(self, symbol: str) -> str:
        """A line that returns what another function returns for the same arguments."""
        return wrapped(f"    return {symbol}(", self.names, ");")


def wrapped(begin: str, parts: Iterable[str], end: str) -> str:
    """A list in parentheses, in lines of at most 80 columns."""
    text = begin + ", ".join(it.replace(" ", "\0") for it in parts) + end
    indent = " " * (len(begin) - len(begin.lstrip()) + 4)
    lines = textwrap.wrap(text, 80, subsequent_indent=indent, break_long_words=False)
    return "\n".join(lines).replace("\0", " ")


def declaration(argument: Argument, wide: bool) -> str:
    """The argument in a prototype."""
    kind, name, way = argument.kind, argument.name, argument.way
    base = kind.wide if wide else kind.narrow
    if base == "...":
        return base
    if name == "ranges":
        return f"const int {name}[][3]"
    if way and kind.result != kind.narrow:
        base = kind.result
    if argument.length is not None:
        return f"{base} {name}[]" if way else f"const {base} {name}[]"
    base += " *" if way else ""
    return f"{base}{name}" if base.endswith("*") else f"{base} {name}"


def entries(row: Row) -> Iterator[Entry]:
    """The functions that a row describes, the forms with int first."""
    forms = FORMS if row.where == "collective" else (("", ()),)
    for stem, (form, more) in zip(row.stems, forms, strict=True):
        for wide in (False, True)[: 1 + row.two]:
            symbol = f"MPI_{stem}{'_c' * wide}"
            yield Entry(row, symbol, wide, form, row.arguments + more)


def of(*where: str) -> list[Entry]:
    """All functions that live there."""
    return [entry for row in ROWS if row.where in where for entry in entries(row)]


def aliases() -> Iterator[tuple[Entry, str]]:
    """Each alias as a function, and the name of the function that it calls."""
    known = {it.symbol: it for it in of("c", "python", "collective")}
    for row in ROWS:
        if row.where == "alias":
            entry = known[f"MPI_{row.of}"]
            yield entry._replace(symbol=f"MPI_{row.name}"), entry.symbol


def identities() -> Iterator[Entry]:
    number = Argument("handle", KINDS["n"], "", None)
    return (it._replace(arguments=(number,)) for it in of("identity"))


def constant(entry: Entry) -> str:
    """The number of a function that lives in Python, as a name of C."""
    return f"PSC_MPI_FUNCTION_{entry.symbol.removeprefix('MPI_').upper()}"


def collective(row: Row) -> str:
    """The number of a collective, as a name of C."""
    return f"PSC_MPI_{row.name.upper()}"


# ---- functions.h ----


def header() -> str:
    """The text of functions.h."""
    numbers = [collective(it) for it in ROWS if it.where == "collective"]
    functions = [constant(it) for it in of("python")]
    exported = [it.prototype for it in of("c", "python", "collective")]
    exported += [it.prototype for it, _ in aliases()]
    exported += [it.prototype for it in identities()]
    return "\n".join(
        [
            HEADER,
            enumeration("psc_mpi_collective_number", [*numbers, "PSC_MPI_COLLECTIVE_COUNT"]),
            enumeration("psc_mpi_function_number", [*functions, "PSC_MPI_FUNCTION_COUNT"]),
            PUSH,
            *(f"{it};" for it in exported),
            POP,
        ]
    )


def enumeration(name: str, members: list[str]) -> str:
    lines = ",\n    ".join(members)
    return f"typedef enum {name} {{\n    {lines}\n}} {name}_t;\n"


# ---- functions.c ----


def source() -> str:
    """The text of functions.c."""
    parts = [SOURCE, descriptions()]
    parts += [narrow_form(it) for it in of("c") if it.row.two and not it.wide]
    parts += [carried(it) for it in of("python")]
    parts += [collective_call(it) for it in of("collective")]
    parts += [function(it, it.calls(symbol)) for it, symbol in aliases()]
    parts += [function(it, "    return handle;") for it in identities()]
    parts += [ABSENT, PUSH]
    parts += [f"ABSENT({it.symbol})" for it in of("absent")]
    parts += [datum(it.symbol) for it in of("data")]
    return "\n".join([*parts, POP])


def stand_ins() -> str:
    """C that has the functions which somebody writes by hand, as absent: weak, for tests that have
    none or a few of them."""
    by_hand = [it for it in of("c") if it.wide or not it.row.two]
    absent = [f"ABSENT({it.symbol})" for it in by_hand]
    called = ["ABSENT(psc_mpi_python)", "ABSENT(psc_mpi_collective)"]
    head = f'{NOTICE}#include "pscompy_mpi/abi_mpich.h"'
    return "\n".join([head, WEAK, *called, PUSH, *absent, POP])


def function(entry: Entry, body: str) -> str:
    return f"{entry.prototype}\n{{\n{body}\n}}\n"


def descriptions() -> str:
    """The table by which Python's functions are found and their arguments converted."""
    lines = [description(it) for it in of("python")]
    head = "const psc_mpi_function_t psc_mpi_functions[PSC_MPI_FUNCTION_COUNT] = {"
    return "\n".join([head, *lines, "};\n"])


def description(entry: Entry) -> str:
    codes = "".join(way(it) + code(it, entry.wide) for it in entry.arguments)
    name = entry.symbol.removeprefix("MPI_").lower()
    return f'    [{constant(entry)}] = {{"{entry.row.room}", "{name}", "{codes}"}},'


def way(argument: Argument) -> str:
    return (WAYS if argument.length is None else ARRAY_WAYS)[argument.way]


def code(argument: Argument, wide: bool) -> str:
    """The letter that says what an argument is; one with two types is a long in its second form."""
    return "l" if wide and argument.two else argument.kind.code


def carried(entry: Entry) -> str:
    """A function that lives in Python."""
    values = [value for it in entry.arguments for value in carried_values(it)]
    array = wrapped("    const intptr_t values[] = {", values, "};")
    return function(entry, f"{array}\n\n    return psc_mpi_python({constant(entry)}, values);")


def carried_values(argument: Argument) -> Iterator[str]:
    """An argument as the carrier takes it; of an array also the number of elements."""
    address = argument.way or argument.length is not None or argument.kind.narrow.endswith("*")
    yield f"(intptr_t){argument.name}" if address else argument.name
    if argument.length is not None:
        yield argument.length


def collective_call(entry: Entry) -> str:
    """A collective, whose arguments have the names of the members of psc_mpi_collective_t."""
    members = {"number": collective(entry.row), "form": entry.form}
    members |= {"wide": "true"} if entry.wide else {}
    members |= {it: it for it in entry.names}
    listed = [f".{name} = {value}" for name, value in members.items()]
    call = wrapped("    const psc_mpi_collective_t call = {", listed, "};")
    return function(entry, f"{call}\n\n    return psc_mpi_collective(&call);")


def narrow_form(entry: Entry) -> str:
    """The form with int of a function that is written by hand with MPI_Count."""
    results = [it for it in entry.arguments if it.two and it.way]
    wide = f"{entry.symbol}_c"
    if not results:
        return function(entry, entry.calls(wide))
    passed = [f"&wide_{it.name}" if it in results else it.name for it in entry.arguments]
    call = wrapped(f"    int code = {wide}(", passed, ");")
    lines = [*map(wide_variable, results), call, "", "    if (code != MPI_SUCCESS)"]
    lines += ["        return code;"]
    lines += [f"    *{it.name} = {narrowed(it)};" for it in results]
    return function(entry, "\n".join([*lines, "    return code;"]))


def wide_variable(argument: Argument) -> str:
    initial = f"*{argument.name}" if argument.way == "&" else "0"
    return f"    {argument.kind.wide} wide_{argument.name} = {initial};"


def narrowed(argument: Argument) -> str:
    name = f"wide_{argument.name}"
    return f"psc_mpi_narrow({name})" if argument.kind.narrow == "int" else name


def datum(symbol: str) -> str:
    """An address that stands for something."""
    return f"static int at_{symbol};\nint *const {symbol} = &at_{symbol};"


# ---- the list of the documentation ----

MARKS = "<!-- functions -->\n", "<!-- end of functions -->\n"
# Rooms that people call otherwise.
TITLES = {"alias": "older names", "identity": "numbers of handles", "ports": "ports, spawn"}


def page(text: str) -> str:
    """The text of a page with the list of today between its marks. Raises `ValueError` if it has
    no marks."""
    head, rest = text.split(MARKS[0])
    _, tail = rest.split(MARKS[1])
    return f"{head}{MARKS[0]}\n{listing()}\n\n{MARKS[1]}{tail}"


def listing() -> str:
    """The functions that there are, and those that are lacking, as Markdown."""
    there = [it for it in ROWS if it.where in ("c", "python", "collective", "alias", "identity")]
    lacking = [it for it in ROWS if it.where in ("absent", "missing")]
    heads = ("| what | functions |\n|---|---|", "| what is lacking | functions |\n|---|---|")
    tables = (rooms(there, lambda it: it.room or it.where), rooms(lacking, lambda it: it.room))
    return "\n\n".join(f"{head}\n{table}" for head, table in zip(heads, tables, strict=True))


def rooms(rows: list[Row], room: Callable[[Row], str]) -> str:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(room(row), []).append(f"`{row.name}`")
    named = {TITLES.get(name, name): names for name, names in found.items()}
    return "\n".join(f"| {name} | {' '.join(names)} |" for name, names in named.items())


def write(folder: Path) -> None:
    """Write what has changed, so that a build compiles nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"functions.h": header(), "functions.c": source()}
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def main(arguments: list[str]) -> None:
    if arguments == ["--list"]:
        print(listing())
    elif len(arguments) == 2 and arguments[0] == "--page":
        path = Path(arguments[1])
        path.write_text(page(path.read_text()))
    elif len(arguments) == 1 and not arguments[0].startswith("-"):
        write(Path(arguments[0]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
