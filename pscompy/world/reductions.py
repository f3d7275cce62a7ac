"""How the operands of several ranks become one: operations by name, functions of numpy or of the
program, and numbers of Python."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from functools import reduce as fold
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pscompy.errors import shown
from pscompy.world.called import OPERATIONS, TYPES
from pscompy.world.collectives import Reduction
from pscompy.world.operands import or_objects

_FUNCTIONS: Final[dict[Any, str]] = {
    np.add: "sum",
    np.multiply: "prod",
    np.minimum: "min",
    np.maximum: "max",
    np.logical_and: "land",
    np.logical_or: "lor",
    np.logical_xor: "lxor",
    np.bitwise_and: "band",
    np.bitwise_or: "bor",
    np.bitwise_xor: "bxor",
}
_TYPES: Final[dict[Any, int]] = {np.dtype(name): number for number, name in enumerate(TYPES)}
_WITHOUT: Final = {"min": "c", "max": "c", "band": "fc", "bor": "fc", "bxor": "fc"}
"""Operation -> kinds of types for which it has no meaning."""


class Op:
    """A function of the program that combines operands.

    `function(a, b)` gets two numpy arrays of one dimension, or two numbers or objects, of which `a`
    comes from the lower ranks, and returns what they become together, arrays as an array of the
    same length. It must be associative, and may neither keep nor change the arrays. It may be
    called several times for one operation, in any thread of the rank that waits. With `commutes`
    the operands may be combined in another order than that of the ranks.
    """

    def __init__(self, function: Callable[[Any, Any], Any], commutes: bool = False) -> None:
        if not callable(function):
            raise TypeError(f"an operation is a name or a function, not {shown(function)}")
        self.function = function
        self.commutes = commutes

    def __repr__(self) -> str:
        return f"Op({getattr(self.function, '__qualname__', self.function)})"


AnyOp = str | Op | Callable[[Any, Any], Any]


def named(op: AnyOp) -> str | Op:
    """Return the name of a built-in operation, or an Op. Raises `TypeError` or `ValueError`."""
    if isinstance(op, np.ufunc) and op in _FUNCTIONS:
        return _FUNCTIONS[op]
    if isinstance(op, str):
        if op not in OPERATIONS:
            known = ", ".join(OPERATIONS)
            raise ValueError(f"no operation is called {shown(op)}: there are {known}")
        return op
    return op if isinstance(op, Op) else Op(op)


def of_arrays(op: AnyOp, dtype: np.dtype[Any]) -> Reduction:
    """Return the reduction of arrays. Raises `TypeError` if the operation has no meaning for the
    type."""
    which = named(op)
    if isinstance(which, Op):
        return _of_function(which, dtype)
    if dtype not in _TYPES or dtype.kind in _WITHOUT.get(which, ""):
        raise TypeError(f"there is no {which} of {dtype}; a function of yours may combine them")
    return Reduction(OPERATIONS.index(which), _TYPES[dtype])


def _of_function(op: Op, dtype: np.dtype[Any]) -> Reduction:
    made = Reduction(commutes=op.commutes)

    def combine(lower: memoryview, higher: memoryview) -> bool:
        try:
            into: NDArray[Any] = np.frombuffer(higher, dtype)
            into[...] = op.function(np.frombuffer(lower, dtype), into)
        except BaseException as error:
            made.raised.append(error)
            return False
        return True

    made.combine = combine
    return made


# ---- numbers: they travel with their kind, because ranks may mix kinds ----

NUMBER: Final = struct.Struct("=q16s")
_INT, _FLOAT, _COMPLEX, _TOO_LARGE, _REFUSED = range(5)
_VALUES: Final = {
    _INT: struct.Struct("=q8x"),
    _FLOAT: struct.Struct("=d8x"),
    _COMPLEX: struct.Struct("=dd"),
}
Number = int | float | complex


def is_number(value: object) -> bool:
    """Return whether a value is a number of Python, or a scalar of numpy, and not an array."""
    return isinstance(value, (int, float, complex, np.number, np.bool_))


def pack(value: Any) -> bytes:
    """Return a number and its kind as bytes; an int beyond 64 bits becomes a mark."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            return NUMBER.pack(_TOO_LARGE, b"")
        return NUMBER.pack(_INT, _VALUES[_INT].pack(value))
    if isinstance(value, float):
        return NUMBER.pack(_FLOAT, _VALUES[_FLOAT].pack(value))
    if isinstance(value, complex):
        return NUMBER.pack(_COMPLEX, _VALUES[_COMPLEX].pack(value.real, value.imag))
    return NUMBER.pack(_REFUSED, b"")


def unpack(packed: Any, what: str) -> Any:
    """Return the number in bytes of `pack`. `what` is the call that an exception names."""
    kind, data = NUMBER.unpack(packed)
    if kind == _TOO_LARGE:
        raise OverflowError(f"{what}: an int is beyond 64 bits{or_objects(what)}")
    if kind == _REFUSED:
        raise TypeError(f"{what}: the operation has no meaning for these numbers")
    values = _VALUES[kind].unpack(data)
    return complex(*values) if kind == _COMPLEX else values[0]


def _least(a: Any, b: Any) -> Any:
    return a if a != a else b if b != b else min(a, b)


def _greatest(a: Any, b: Any) -> Any:
    return a if a != a else b if b != b else max(a, b)


OF_OBJECTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sum": operator.add,
    "prod": operator.mul,
    "min": _least,
    "max": _greatest,
    "land": lambda a, b: bool(a and b),
    "lor": lambda a, b: bool(a or b),
    "lxor": lambda a, b: bool(a) != bool(b),
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
}


def folded(op: str, packed: Any, n: int, what: str) -> Any:
    """Return the first `n` numbers that `pack` has packed, combined in their order. All ranks raise
    what one of the numbers is refused for."""
    begins = range(0, len(packed), NUMBER.size)
    found = [unpack(packed[at : at + NUMBER.size], what) for at in begins]
    try:
        result = pack(fold(OF_OBJECTS[op], found[:n]))
    except TypeError:
        result = NUMBER.pack(_REFUSED, b"")
    return unpack(result, what)


def of_numbers(op: Op, what: str) -> Reduction:
    """Return the reduction of numbers that `pack` has packed."""
    made = Reduction(commutes=op.commutes)

    def combine(lower: memoryview, higher: memoryview) -> bool:
        for packed in (lower, higher):
            if NUMBER.unpack(packed)[0] >= _TOO_LARGE:  # all ranks raise it at the end
                higher[:] = bytes(packed)
                return True
        try:
            higher[:] = pack(op.function(unpack(lower, what), unpack(higher, what)))
        except TypeError:
            higher[:] = NUMBER.pack(_REFUSED, b"")
        except BaseException as error:
            made.raised.append(error)
            return False
        return True

    made.combine = combine
    return made
