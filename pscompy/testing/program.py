"""Programs of tests, written as functions, so that linters and type checkers read them.

A test that starts processes of its own writes their program as a function of its module and runs
the text that `program` makes of that function. The text contains nothing else of the test's module,
so such a program starts as fast as a user's.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable


def program(
    main: Callable[..., object],
    *arguments: object,
    uses: Iterable[Callable[..., object]] = (),
    **keywords: object,
) -> str:
    """The text of a program that calls `main(*arguments, **keywords)`.

    `uses` are the functions and classes that `main` calls and does not import itself; imports must
    stand inside each function. Arguments must be literals: numbers, texts, bytes, and lists, tuples
    and dicts of them. Raises `ValueError` for another argument.
    """
    words = [*map(_literal, arguments), *(f"{k}={_literal(it)}" for k, it in keywords.items())]
    parts = [textwrap.dedent(inspect.getsource(it)) for it in (*uses, main)]
    return "\n\n".join(
        ["from __future__ import annotations", *parts, f"{main.__name__}({', '.join(words)})\n"]
    )


def _literal(value: object) -> str:
    text = repr(value)
    if ast.literal_eval(text) != value:
        raise ValueError(f"{text} cannot be written into a program")
    return text
