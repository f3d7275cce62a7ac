"""Encoding of numpy arrays of plain numbers.

numpy's own pickling of an array takes longer than the network needs for 10 KiB. An array that is
the whole object is sent without pickle: type and shape are the index, and the numbers are the only
chunk. For an array within another object, pickle is given type, shape and numbers.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from pscompy.api.c import _binding
from pscompy.errors import ProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "array"  # stands in the head where other archives have the name of their serialiser
_KINDS = "biufc"
_DIMENSIONS_MAX = 32
_DESCRIBED_MAX = 256  # descriptions of arrays that are cached
_TYPES = "<s7s"  # the beginning of an index: the order, C or F, and numpy's name of the type


@lru_cache
def _layout(dimensions: int) -> struct.Struct:
    return struct.Struct(f"{_TYPES}{dimensions}Q")


def describe(obj: NDArray[Any]) -> tuple[bytes, NDArray[Any]] | None:
    """Return the index (type and shape as bytes) and the array in C order, without a copy. Returns
    None if the array has gaps, too many dimensions, or elements that are no numbers."""
    order = _order(obj)
    if order is None or obj.ndim > _DIMENSIONS_MAX:
        return None
    index = _layout(obj.ndim).pack(order.encode(), obj.dtype.str.encode(), *obj.shape)
    return index, obj if order == "C" else obj.T


def _order(obj: NDArray[Any]) -> str | None:
    """Return the order ("C" or "F") in which the numbers are contiguous, or None if there are gaps
    or the elements are no numbers."""
    flags = obj.flags
    if obj.dtype.kind not in _KINDS or not flags.forc:
        return None
    return "F" if flags.fnc else "C"


restore = _binding.restore
restore.__module__ = __name__  # pickles name the function by this module


def reduced(data: bytes) -> bool:
    """Return whether this pickle begins with arrays that `restore` reads. The answer is used to
    guess what the next object contains."""
    return data.find(b"pscompy.parcel.array_codec", 0, 4096) >= 0


def make(index: memoryview, numbers: memoryview) -> NDArray[Any]:
    """Return the array over the memory of `numbers`, with the type and shape that `index` holds.
    Raises `ProtocolError` if index and length do not describe one."""
    shape, kind, order, nbytes = _described(bytes(index))
    if nbytes != numbers.nbytes:
        raise ProtocolError(f"{numbers.nbytes} bytes are no array of {shape} {kind}")
    try:
        made: NDArray[Any] = _numpy().ndarray(shape, kind, numbers, order=order)
    except (ValueError, OverflowError) as error:  # raised for 0 bytes with a huge dimension
        raise ProtocolError(f"{shape} is no shape of an array") from error
    return made


@lru_cache(_DESCRIBED_MAX)
def _described(index: bytes) -> tuple[tuple[int, ...], Any, str, int]:
    """Return shape, type, order and length in bytes of the array that `index` describes. Cached,
    because many arrays have the same index."""
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
    """Return numpy, which is imported at its first use, because programs without arrays do not need
    it."""
    import numpy as np

    return np
