"""Constructors of numpy arrays from untrusted senders (plain.py).

numpy's own `dtype`, `ndarray`, `_reconstruct`, `scalar` and `_frombuffer` take strides, flags and
pointers from a pickle, so they are never called with values from a pickle. The makers here stand
for these names: they read types as the text of their kind and its parameters, and arrays as a type,
a shape and numbers of exactly that length. Records with fields of objects and arrays of subclasses
are refused.
"""

from __future__ import annotations

import re
from math import prod
from pickle import UnpicklingError
from typing import Any

import numpy as np

from pscompy.parcel import array_codec
from pscompy.parcel.plain import Budget, Maker, buffer, check, is_shape

_KIND = re.compile(r"([biufcSUVmMO])(\d{1,9})")
_UNITS = frozenset((*"YMWDhms", "ms", "us", "ns", "ps", "fs", "as"))
_NESTED_MAX = 8  # levels of records within records
_BEGUN = np.dtype("V57")  # marks an array that still lacks its state
_UNICODE_MAX = 0x10FFFF


# ---- types --------------------------------------------------------------------


class _Type:
    """A type that still lacks its state, such as byte order and fields. `size` is in bytes."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind = kind
        self.size = size


def _type(budget: Budget, text: Any, align: Any = False, copy: Any = False) -> _Type:
    match = _KIND.fullmatch(text) if type(text) is str else None
    if match is None:
        raise UnpicklingError(f"{text!r} is no type of numbers")
    return _Type(match[1], int(match[2]))


def _fill_type(budget: Budget, made: _Type, state: Any) -> np.dtype[Any]:
    check(type(state) is tuple and len(state) in (8, 9) and type(state[7]) is int, "dtype")
    order, inner, names, fields = state[1:5]
    check(type(order) is str and order in ("<", ">", "=", "|"), "dtype")
    more = state[8] if len(state) == 9 else None
    if made.kind in "mM":
        return _time_type(made.kind, order, more)
    check(not more or type(more) is dict, "dtype")
    if made.kind != "V":
        return np.dtype(f"{order}{made.kind}{made.size}" if made.kind != "O" else "O")
    if inner is not None:
        return _inner_type(inner)
    if names is not None:
        return _record(made.size, names, fields, bool(state[7] & 0x80))
    return np.dtype(f"V{made.size}")


def _time_type(kind: str, order: str, more: Any) -> np.dtype[Any]:
    check(type(more) is tuple and len(more) == 2, "dtype")
    unit = more[1]
    check(type(unit) is tuple and len(unit) == 4 and type(unit[0]) is bytes, "dtype")
    name, count = unit[0].decode("ascii"), unit[1]
    check(type(count) is int and 0 < count < 1 << 31 and unit[2:] == (1, 1), "dtype")
    if name == "generic":
        return np.dtype(f"{order}{kind}8")
    check(name in _UNITS, "dtype")
    return np.dtype(f"{order}{kind}8[{count}{name}]")


def _inner_type(inner: Any) -> np.dtype[Any]:
    check(type(inner) is tuple and len(inner) == 2 and is_shape(inner[1]), "dtype")
    base, shape = inner
    _check_field(base)
    return np.dtype((base, shape))


def _record(size: int, names: Any, fields: Any, aligned: bool) -> np.dtype[Any]:
    check(type(names) is tuple and type(fields) is dict and len(fields) == len(names), "dtype")
    parts = [fields.get(name) for name in names if type(name) is str]
    check(len(parts) == len(names), "dtype")
    for part in parts:
        check(type(part) is tuple and len(part) == 2 and type(part[1]) is int, "dtype")
        _check_field(part[0])
    check(sum(kind.itemsize for kind, _ in parts) <= size, "dtype")
    return np.dtype(
        {
            "names": list(names),
            "formats": [kind for kind, _ in parts],
            "offsets": [offset for _, offset in parts],
            "itemsize": size,
        },
        align=aligned,
    )


def _check_field(kind: Any) -> None:
    check(isinstance(kind, np.dtype) and kind.itemsize > 0 and not kind.hasobject, "dtype")
    check(_depth(kind) < _NESTED_MAX, "dtype")


def _depth(kind: np.dtype[Any]) -> int:
    if kind.subdtype is not None:
        return 1 + _depth(kind.subdtype[0])
    if kind.fields is not None:
        return 1 + max((_depth(field[0]) for field in kind.fields.values()), default=0)
    return 0


# ---- arrays -------------------------------------------------------------------


def _length(kind: Any, shape: Any) -> int:
    """Return the length in bytes of an array of numbers."""
    check(isinstance(kind, np.dtype) and not kind.hasobject and is_shape(shape), "an array")
    nbytes: int = prod(shape) * kind.itemsize
    check(nbytes > 0 or prod(shape) == 0, "an array")
    return nbytes


def _checked(made: Any) -> Any:
    """Return the array `made`. Raises `UnpicklingError` if a text in it has invalid characters."""
    for name in made.dtype.names or ():
        _checked(made[name])
    if made.dtype.kind == "U" and made.size and made.dtype.itemsize:
        numbers = made.reshape(-1, order="A").view(made.dtype.str[0] + "u4")
        check(int(numbers.max()) <= _UNICODE_MAX, "a text")
    return made


def _over(
    budget: Budget, data: Any, kind: Any, shape: Any, order: Any = "C", axes: Any = None
) -> Any:
    """Return an array over a buffer that has arrived."""
    check(type(order) is str and order in ("C", "F", "K"), "an array")
    view = buffer(data)
    check(view.nbytes == _length(kind, shape), "an array")
    made = np.ndarray(shape, kind, view, order="F" if order == "F" else "C")
    if order == "K" and axes is not None:
        check(is_shape(axes), "an array")
        made = made.transpose(axes)
    return _checked(made)


def _scalar(budget: Budget, kind: Any, data: Any) -> Any:
    check(type(data) is bytes and _length(kind, ()) == len(data), "a number")
    return _checked(np.ndarray((), kind, data))[()]


def _empty(budget: Budget, kind: Any, shape: Any, code: Any) -> Any:
    """Begin an array; `_fill` gives it its state."""
    check(kind is np.ndarray and shape == (0,) and code == b"b", "an array")
    return np.ndarray((0,), _BEGUN)


def _fill(budget: Budget, made: Any, state: Any) -> Any:
    check(type(state) is tuple and len(state) == 5 and state[0] == 1, "an array")
    _, shape, kind, fortran, data = state
    check(type(fortran) is bool and isinstance(kind, np.dtype), "an array")
    if kind == np.dtype("O"):
        check(type(data) is list and is_shape(shape) and prod(shape) == len(data), "an array")
        budget.spend(len(data))
        check(not any(map(_holds_objects, data)), "an array of arrays of objects")
    else:
        check(type(data) is bytes and _length(kind, shape) == len(data), "an array")
        budget.spend(len(data))
    made.__setstate__((1, shape, kind, fortran, data))
    return _checked(made)


def _holds_objects(item: Any) -> bool:
    """Return whether `item` is an array that holds objects, or may do so once it has its state.
    Such arrays are refused within arrays, because numpy frees them by recursion."""
    return type(item) is np.ndarray and (item.dtype.hasobject or item.dtype == _BEGUN)


_ARRAY = ("numpy._core.multiarray", "numpy.core.multiarray")
_NUMERIC = ("numpy._core.numeric", "numpy.core.numeric")


def _only_named(budget: Budget, *args: Any) -> Any:
    raise UnpicklingError("numpy.ndarray is not called")


MAKERS = {
    maker.name: maker
    for maker in (
        Maker("numpy:dtype", _type, _fill_type, needs_state=True),
        Maker("numpy:ndarray", _only_named),
        *(Maker(f"{module}:_reconstruct", _empty, _fill, True, True) for module in _ARRAY),
        *(Maker(f"{module}:scalar", _scalar, hides=True) for module in _ARRAY),
        *(Maker(f"{module}:_frombuffer", _over, hides=True) for module in _NUMERIC),
        Maker(f"{array_codec.__name__}:restore", _over, hides=True),
    )
}
