"""Calls of MPI functions that live in Python: what stands between C and them.

C gives handles as numbers, and takes numbers. Between these are objects with a `handle`, which a
registry finds; and an exception becomes the code of an error.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

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


def named(name: str) -> tuple[str, int]:
    """The name of an object as C takes it, cut behind a character if it is too long, and its length
    in bytes."""
    most = constants.MAX_OBJECT_NAME - 1
    name = name[:most]
    while len(encoded := name.encode(errors="surrogateescape")) > most:
        name = name[:-1]
    return name, len(encoded)


class Plan(NamedTuple):
    """How to call a function: found once, because programs construct many types."""

    function: Callable[..., Any]
    given: tuple[tuple[str, bool], ...]  # of each argument its letter, and whether None is one
    wanted: tuple[str, ...]  # the letters of the results


def call(module: str, name: str, codes: str, arguments: list[Any]) -> list[Any] | int:
    """Call a function, and return its results as a list, or the code of an error."""
    found = plan(module, name, codes)
    if found is None:
        return constants.ABSENT
    try:
        pairs = zip(found.given, arguments, strict=True)
        given = [
            convert(letter, value, takes_null) if letter in objects else value
            for (letter, takes_null), value in pairs
        ]
        return results(found.wanted, found.function(*given))
    except Exception as error:
        return code_of(error)


@functools.cache
def plan(module: str, name: str, codes: str) -> Plan | None:
    """How to call the function of this name, or None if there is none."""
    function = find(module, name)
    if function is None:
        return None
    full = f"{module}.{name}"
    given = ((it, takes_null(it, full)) for it in letters(codes, GIVEN))
    return Plan(function, tuple(given), tuple(letters(codes, RESULTS)))


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


def takes_null(letter: str, function: str) -> bool:
    return letter in objects and re.fullmatch(TAKES_NULL[letter], function) is not None


def convert(letter: str, value: Any, null: bool) -> Any:
    """The object, or the list of objects, of handles that C gives; null: a null handle is None."""
    if isinstance(value, list):
        return [convert(letter, it, null) for it in value]
    if null and value == NULL[letter]:
        return None
    try:
        return objects[letter][value]
    except KeyError:
        raise MpiError(NO_SUCH[letter]) from None


def results(wanted: tuple[str, ...], returned: Any) -> list[Any]:
    """The results of a function, as C takes them."""
    values = returned if isinstance(returned, tuple) and len(wanted) > 1 else (returned,)
    # the last values may be missing
    return [number(letter, value) for letter, value in zip(wanted, values, strict=False)]


def number(letter: str, value: Any) -> Any:
    if letter not in objects:
        return value
    if isinstance(value, list):
        return [number(letter, it) for it in value]
    return NULL[letter] if value is None else value.handle


def code_of(error: Exception) -> int:
    """Return the code of an error of MPI that an exception becomes."""
    found = mpi_error(error)
    return _code(found.error_class, str(found))


def mpi_error(error: Exception) -> MpiError:
    """Return the error of MPI that an exception becomes."""
    if isinstance(error, MpiError):
        return error
    return MpiError(_class_of(error), str(error) or type(error).__name__)


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
