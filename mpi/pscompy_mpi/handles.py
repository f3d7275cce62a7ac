"""Handles of objects that live in Python: numbers in MPICH's ranges, and what they stand for.

Communicators, types and windows are here, too, but the library has made their handles.
"""

from __future__ import annotations

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

# What handles stand for, by the letter of their kind.
objects: dict[str, dict[int, Any]] = {letter: {} for letter in NULL}

_lock = threading.Lock()
_free: dict[str, list[int]] = {letter: [] for letter in KINDS}
_made = dict.fromkeys(KINDS, 0)


def made(kind: int, number: int) -> int:
    """Return a handle of this kind, as those that a call of the program has made."""
    origin = constants.MADE << constants.ORIGIN_SHIFT
    return constants.signed(origin | kind << constants.HANDLE_BITS | number)


def add(letter: str, thing: Any) -> int:
    """Return a handle that stands for this object from now on."""
    with _lock:
        if _free[letter]:
            number = _free[letter].pop()
        else:
            number, _made[letter] = _made[letter], _made[letter] + 1
        handle = made(KINDS[letter], number)
        objects[letter][handle] = thing
    return handle


def remove(letter: str, handle: int) -> None:
    """Let a handle stand for nothing."""
    with _lock:
        del objects[letter][handle]
        _free[letter].append(handle & ((1 << constants.HANDLE_BITS) - 1))
