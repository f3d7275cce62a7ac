"""Calls of MPI functions that live in Python: what stands between C and them.

C gives handles as numbers, and takes numbers. Between these are objects with a `handle`, which a
registry finds; and an exception becomes the code of an error.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from pscompy.errors import PeerLost, PscomError, Unsupported
from pscompy_mpi import constants, host
from pscompy_mpi.handles import NULL, objects

# How an argument goes: the first of its two characters (src/entries.h).
GIVEN = ".&[%"
RESULTS = ">&]%"
ARRAYS = "[]%"

# the error of a handle that stands for nothing
NO_SUCH = {
    "c": constants.ERR_COMM,
    "g": constants.ERR_GROUP,
    "f": constants.ERR_INFO,
    "t": constants.ERR_TYPE,
    "w": constants.ERR_WIN,
}
# the functions, by module and name, that a null handle is no error for: they get None
TAKES_NULL = {
    "c": r"communicators\.comm_get_name|intercommunicators\.intercomm_create",
    "g": "$",
    "f": r"(?!info\.).*",
    "t": "types.type_get_name",
    "w": "windows.win_get_name",
}


class MpiError(Exception):
    """The function returns the code of an error: a class of MPI, and words."""

    def __init__(self, error_class: int, text: str = "") -> None:
        super().__init__(text)
        self.error_class = error_class


def call(module: str, name: str, codes: str, arguments: list[Any]) -> list[Any] | int:
    """Call a function, and return its results as a list, or the code of an error."""
    function = find(module, name)
    if function is None:
        return constants.ABSENT
    try:
        pairs = zip(letters(codes, GIVEN), arguments, strict=True)
        given = [convert(letter, value, f"{module}.{name}") for letter, value in pairs]
        return list(results(codes, function(*given)))
    except MpiError as error:
        return _code(error.error_class, str(error))
    except Exception as error:
        return _code(_class_of(error), f"{error or type(error).__name__}")


def find(module: str, name: str) -> Callable[..., Any] | None:
    """The function of this name, or without the _c of forms with MPI_Count."""
    try:
        found = importlib.import_module(f"pscompy_mpi.{module}")
    except ModuleNotFoundError:
        return None
    return getattr(found, name, None) or getattr(found, name.removesuffix("_c"), None)


def letters(codes: str, ways: str) -> list[str]:
    """The letters of the arguments that go in one of these ways."""
    pairs = zip(codes[::2], codes[1::2], strict=True)
    return [letter for way, letter in pairs if way in ways]


def convert(letter: str, value: Any, function: str) -> Any:
    """The object, or the list of objects, of an argument that C gives."""
    if letter not in objects:
        return value
    if isinstance(value, list):
        return [convert(letter, it, function) for it in value]
    if value == NULL[letter] and re.fullmatch(TAKES_NULL[letter], function):
        return None
    try:
        return objects[letter][value]
    except KeyError:
        raise MpiError(NO_SUCH[letter]) from None


def results(codes: str, returned: Any) -> Iterator[Any]:
    """What a function has returned, as C takes it."""
    wanted = letters(codes, RESULTS)
    values = returned if isinstance(returned, tuple) and len(wanted) > 1 else (returned,)
    for letter, value in zip(wanted, values, strict=False):  # the last may be missing
        yield number(letter, value)


def number(letter: str, value: Any) -> Any:
    if letter not in objects:
        return value
    if isinstance(value, list):
        return [number(letter, it) for it in value]
    return NULL[letter] if value is None else value.handle


def _class_of(error: Exception) -> int:
    known: list[tuple[type[Exception], int]] = [
        (PeerLost, constants.ERR_PROC_FAILED),
        (Unsupported, constants.ERR_UNSUPPORTED_OPERATION),
        (PscomError, constants.ERR_OTHER),
        (MemoryError, constants.ERR_NO_MEM),
        (ValueError, constants.ERR_ARG),
    ]
    return next((it for kind, it in known if isinstance(error, kind)), constants.ERR_INTERN)


def _code(error_class: int, text: str) -> int:
    return host.state().native.error_add(error_class, text) if text else error_class
