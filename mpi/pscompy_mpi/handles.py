"""Handles of objects that live in Python: numbers in MPICH's ranges, and what they stand for.

Communicators, types and windows are here, too, but the library has made their handles.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

from pscompy_mpi import constants

# The kinds of objects whose handles are made here, by their letters in src/entries.h.
KINDS = {"g": constants.GROUP, "f": constants.INFO}
NULL = {
    "c": constants.COMM_NULL,
    "g": constants.GROUP_NULL,
    "f": constants.INFO_NULL,
    "t": constants.DATATYPE_NULL,
    "w": constants.WIN_NULL,
}

# Objects by their handles, for each letter of a kind.
objects: dict[str, dict[int, Any]] = {letter: {} for letter in NULL}

_lock = threading.Lock()
_numbers = {letter: itertools.count() for letter in KINDS}


def made(kind: int, number: int) -> int:
    """Return a handle of this kind, as those that a call of the program has made."""
    origin = constants.MADE << constants.ORIGIN_SHIFT
    return constants.signed(origin | kind << constants.HANDLE_BITS | number)


def add(letter: str, thing: Any) -> int:
    """Return a handle that stands for this object from now on. A number comes again only after all
    others, so that a handle that was kept too long stands for nothing."""
    with _lock:
        while (handle := _next(letter)) in objects[letter]:
            pass
        objects[letter][handle] = thing
    return handle


def _next(letter: str) -> int:
    return made(KINDS[letter], next(_numbers[letter]) % (1 << constants.HANDLE_BITS))


def remove(letter: str, handle: int) -> None:
    """Let a handle stand for nothing."""
    with _lock:
        del objects[letter][handle]
