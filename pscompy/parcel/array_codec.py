"""Arrays of plain numbers: numpy's own way of pickling them takes longer than the network needs for
10 KiB.

As an object of its own an array goes without pickle: type and shape are the index, and the numbers
the only chunk. Within others pickle gets the same three.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from math import prod
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from pscompy.errors import ProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

NAME = "array"  # where other archives have their serialiser
_KINDS = "biufc"
_DIMENSIONS_MAX = 32
_DESCRIBED_MAX = 256  # kinds of arrays that are remembered
_TYPES = "<s7s"  # C or F, and numpy's name of the type


@lru_cache
def _layout(dimensions: int) -> struct.Struct:
    return struct.Struct(f"{_TYPES}{dimensions}Q")


def describe(obj: NDArray[Any]) -> tuple[bytes, NDArray[Any]] | None:
    """The index and the memory in order, without a copy; None: it needs more than that."""
    order = _order(obj)
    if order is None or obj.ndim > _DIMENSIONS_MAX:
        return None
    index = _layout(obj.ndim).pack(order.encode(), obj.dtype.str.encode(), *obj.shape)
    return index, obj if order == "C" else obj.T


def _order(obj: NDArray[Any]) -> str | None:
    """In which its numbers lie without gaps; None: there are gaps, or more than numbers."""
    if obj.dtype.kind not in _KINDS:
        return None
    flags = obj.flags
    return "C" if flags.c_contiguous else "F" if flags.f_contiguous else None


def reduce(obj: Any) -> Any:
    """What pickle takes an array within another object for."""
    order = _order(obj)
    if order is None:
        return obj.__reduce_ex__(5)
    return restore, (PickleBuffer(obj), obj.dtype, obj.shape, order)


def restore(numbers: Buffer, kind: Any, shape: tuple[int, ...], order: Any) -> NDArray[Any]:
    """The array that was reduced to this; `ProtocolError`: there is none."""
    if kind.kind not in _KINDS:
        raise ProtocolError(f"{kind!r} is no type of numbers")
    made: NDArray[Any] = _numpy().ndarray(shape, kind, numbers, order=order)
    return made


def make(index: memoryview, numbers: memoryview) -> NDArray[Any]:
    """The array over this memory; `ProtocolError`: there is no such array."""
    shape, kind, order, nbytes = _described(bytes(index))
    if nbytes != numbers.nbytes:
        raise ProtocolError(f"{numbers.nbytes} bytes are no array of {shape} {kind}")
    try:
        made: NDArray[Any] = _numpy().ndarray(shape, kind, numbers, order=order)
    except (ValueError, OverflowError) as error:  # of no numbers, but a length beyond all memory
        raise ProtocolError(f"{shape} is no shape of an array") from error
    return made


@lru_cache(_DESCRIBED_MAX)
def _described(index: bytes) -> tuple[tuple[int, ...], Any, str, int]:
    """Shape, type, order and length; many arrays are alike."""
    dimensions, odd = divmod(len(index) - 8, 8)
    if odd or not 0 <= dimensions <= _DIMENSIONS_MAX:
        raise ProtocolError(f"an array is described in {len(index)} bytes")
    order, name, *shape = _layout(dimensions).unpack(index)
    kind = _kind(name.rstrip(b"\0"))
    if order not in (b"C", b"F") or kind is None:
        raise ProtocolError(f"{name!r} is no type of numbers, or {order!r} no order")
    return tuple(shape), kind, order.decode(), prod(shape) * kind.itemsize


@lru_cache
def _kind(name: bytes) -> Any:
    if name[1:2].decode("ascii", "replace") not in _KINDS or not name[2:].isdigit():
        return None
    try:
        return _numpy().dtype(name.decode("ascii"))
    except (TypeError, UnicodeError):
        return None


@lru_cache
def _numpy() -> Any:
    """Imported late: a program without arrays does without."""
    import numpy as np

    return np
