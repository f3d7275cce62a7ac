"""Attributes: values that a program attaches to communicators, types and windows by keys.

A value is an address, which is the program's. Functions of the program copy and delete values; C
calls them (`call_copy`, `call_delete` of src/host_native.c).
"""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, NamedTuple

from pscompy_mpi import constants, handles, host
from pscompy_mpi.carrier import MpiError
from pscompy_mpi.communicators import Comm
from pscompy_mpi.types import Datatype

if TYPE_CHECKING:
    from pscompy_mpi.windows import Win


class Key(NamedTuple):
    """A key of a program: what it is for, the program's functions, and their own argument."""

    letter: str
    copy: int
    delete: int
    state: int


_numbers = itertools.count(1)
_keys: dict[int, Key] = {}  # also freed ones, as long as there may be values
_freed: set[int] = set()
# the values of each object, by the letter of its kind and its handle
_values: dict[tuple[str, int], dict[int, int]] = {}


# ---- keys ----


def _create(letter: str, copy: int, delete: int, state: int) -> int:
    keyval = handles.made(constants.KEYVAL, next(_numbers))
    _keys[keyval] = Key(letter, copy, delete, state)
    return keyval


def comm_create_keyval(copy: int, delete: int, state: int) -> int:
    return _create("c", copy, delete, state)


def type_create_keyval(copy: int, delete: int, state: int) -> int:
    return _create("t", copy, delete, state)


def win_create_keyval(copy: int, delete: int, state: int) -> int:
    return _create("w", copy, delete, state)


def comm_free_keyval(keyval: int) -> int:
    """Free a key; it serves the values that it has until they are deleted."""
    if keyval not in _keys or keyval in _freed:
        raise MpiError(constants.ERR_KEYVAL)
    _freed.add(keyval)
    return constants.KEYVAL_INVALID


type_free_keyval = win_free_keyval = comm_free_keyval


# ---- values ----


def _key(letter: str, keyval: int) -> Key:
    key = _keys.get(keyval)
    if key is None or key.letter != letter:
        raise MpiError(constants.ERR_KEYVAL)
    return key


def _get(letter: str, handle: int, keyval: int) -> tuple[int | None, int]:
    _key(letter, keyval)
    value = _values.get((letter, handle), {}).get(keyval)
    return value, value is not None


def _set(letter: str, handle: int, keyval: int, value: int) -> None:
    _key(letter, keyval)
    values = _values.setdefault((letter, handle), {})
    if keyval in values:
        _delete(letter, handle, keyval)
    values[keyval] = value


def _delete(letter: str, handle: int, keyval: int) -> None:
    key = _key(letter, keyval)
    values = _values.get((letter, handle), {})
    if keyval not in values:
        raise MpiError(constants.ERR_KEYVAL)
    code = host.state().native.call_delete(key.delete, handle, keyval, values[keyval], key.state)
    if code != constants.SUCCESS:
        raise MpiError(code)
    del values[keyval]


def delete_all(letter: str, handle: int) -> None:
    """Delete the values of an object that is being freed, the latest first."""
    for keyval in reversed(list(_values.get((letter, handle), {}))):
        _delete(letter, handle, keyval)
    _values.pop((letter, handle), None)


def copy_all(letter: str, source: int, target: int) -> None:
    """Copy the values of an object that was duplicated, as far as their keys want that."""
    for keyval, value in list(_values.get((letter, source), {}).items()):
        key = _keys[keyval]
        code, copied, flag = host.state().native.call_copy(
            key.copy, source, keyval, key.state, value
        )
        if code != constants.SUCCESS:
            raise MpiError(code)
        if flag:
            _values.setdefault((letter, target), {})[keyval] = copied


# ---- predefined ----

_predefined: dict[int, ctypes.c_int] = {}


def _predefine() -> None:
    world = host.state().world
    numbers = {
        constants.TAG_UB: (1 << 31) - 1,
        constants.HOST: constants.PROC_NULL,
        constants.IO: constants.ANY_SOURCE,
        constants.WTIME_IS_GLOBAL: 0,
        constants.UNIVERSE_SIZE: world.size,
        constants.APPNUM: 0,
        constants.LASTUSEDCODE: constants.ERR_LASTCODE,
    }
    _predefined.update({keyval: ctypes.c_int(it) for keyval, it in numbers.items()})


# ---- functions ----


def comm_get_attr(comm: Comm, keyval: int) -> tuple[int | None, int]:
    if not _predefined:
        _predefine()
    if keyval == constants.LASTUSEDCODE:
        _predefined[keyval].value = host.state().native.error_last()
    if keyval in _predefined:
        return ctypes.addressof(_predefined[keyval]), True
    return _get("c", comm.handle, keyval)


def comm_set_attr(comm: Comm, keyval: int, value: int) -> None:
    _set("c", comm.handle, keyval, value)


def comm_delete_attr(comm: Comm, keyval: int) -> None:
    _delete("c", comm.handle, keyval)


def type_get_attr(given: Datatype, keyval: int) -> tuple[int | None, int]:
    return _get("t", given.handle, keyval)


def type_set_attr(given: Datatype, keyval: int, value: int) -> None:
    _set("t", given.handle, keyval, value)


def type_delete_attr(given: Datatype, keyval: int) -> None:
    _delete("t", given.handle, keyval)


def win_get_attr(win: Win, keyval: int) -> tuple[int | None, int]:
    if keyval in win.predefined:
        return win.predefined[keyval], True
    return _get("w", win.handle, keyval)


def win_set_attr(win: Win, keyval: int, value: int) -> None:
    _set("w", win.handle, keyval, value)


def win_delete_attr(win: Win, keyval: int) -> None:
    _delete("w", win.handle, keyval)
