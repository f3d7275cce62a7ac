"""Programs of tests, written as functions, so that linters and type checkers read them.

A test that starts processes of its own writes their program as a function and runs the text that
`program` makes of that function. The text contains of the test's module only what the function
uses, so such a program starts as fast as a user's.
"""

from __future__ import annotations

import ast
import functools
import inspect
import symtable
import textwrap
from collections.abc import Callable, Iterable, Iterator

_FUTURE = "from __future__ import annotations"


def program(
    main: Callable[..., object],
    *arguments: object,
    uses: Iterable[Callable[..., object]] = (),
    **keywords: object,
) -> str:
    """The text of a program that calls `main(*arguments, **keywords)`.

    The text has what `main` uses of its module: imports, functions, classes and constants. `uses`
    are functions and classes of other modules that the program shall contain, not import.
    Arguments must be literals: numbers, texts, bytes, and lists, tuples and dicts of them. Raises
    `ValueError` for another argument, and if `main` uses variables of a function around it.
    """
    words = [*map(_literal, arguments), *(f"{k}={_literal(it)}" for k, it in keywords.items())]
    return f"{module(main, *uses)}\n\n{main.__name__}({', '.join(words)})\n"


def module(*functions: Callable[..., object], **constants: object) -> str:
    """The text of a module that has these functions, what the first one uses of its module, and
    `constants` in place of those that it uses."""
    first = functions[0]
    if outer := first.__code__.co_freevars:
        raise ValueError(f"{first.__name__} uses {', '.join(outer)}: pass them")
    given = [f"{name} = {_literal(value)}" for name, value in constants.items()]
    own = "\n\n".join(textwrap.dedent(inspect.getsource(it)) for it in reversed(functions))
    made = {*constants, *(it.__name__ for it in functions)}
    needed = _needed(own, made, inspect.getsourcefile(first) or "")
    return "\n\n".join([_FUTURE, *given, *needed, own])


def _literal(value: object) -> str:
    text = repr(value)
    if ast.literal_eval(text) != value:
        raise ValueError(f"{text} cannot be written into a program")
    return text


def _needed(source: str, made: set[str], file: str) -> list[str]:
    """The statements of the file that define what `source` uses, in the file's order."""
    statements = _statements(file)
    wanted, names = set(made), set(_used(source))
    while names := names - wanted:
        wanted |= names
        names = {used for name, text in statements if name in names for used in _used(text)}
    texts = (text for name, text in statements if name in wanted - made)
    return list(dict.fromkeys(texts))


@functools.cache
def _statements(file: str) -> list[tuple[str, str]]:
    """Each name that a module defines at its top level, with the statement that defines it."""
    with open(file) as source:
        return [pair for it in ast.parse(source.read()).body for pair in _defined(it)]


def _defined(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name, ast.unparse(statement)
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            yield _name(alias), ast.unparse(ast.Import([alias]))
    elif isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
        for alias in statement.names:
            alone = ast.ImportFrom(statement.module, [alias], statement.level)
            yield _name(alias), ast.unparse(alone)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        for it in ast.walk(statement):
            if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store):
                yield it.id, ast.unparse(statement)


def _name(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


@functools.cache
def _used(source: str) -> frozenset[str]:
    """The names that a piece of a module takes from that module."""
    tables = [symtable.symtable(f"{_FUTURE}\n{source}", "<program>", "exec")]
    for table in tables:
        tables += table.get_children()
    symbols = (symbol for table in tables for symbol in table.get_symbols())
    return frozenset(it.get_name() for it in symbols if it.is_global() and it.is_referenced())
