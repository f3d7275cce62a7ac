"""Arrays of plain numbers, as objects of their own, without pickle: that takes numpy 8 µs, longer
than the network needs for 10 KiB. Type and shape are the index, and the numbers the only chunk."""

from __future__ import annotations

import struct
from functools import lru_cache
from math import prod

from pscompy.errors import ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

NAME = "array"  # where other archives have their serialiser
_KINDS = "biufc"
_DIMENSIONS_MAX = 32
_TYPES = "<s7s"  # C or F, and numpy's name of the type


@lru_cache
def _layout(dimensions: int) -> struct.Struct:
    return struct.Struct(f"{_TYPES}{dimensions}Q")


def describe(obj: NDArray[Any]) -> tuple[bytes, NDArray[Any]] | None:
    """The index and the memory in order, without a copy; None: it needs more than that."""
    kind, flags = obj.dtype, obj.flags
    if kind.kind not in _KINDS or obj.ndim > _DIMENSIONS_MAX:
        return None
    if flags.c_contiguous:
        order, memory = b"C", obj
    elif flags.f_contiguous:
        order, memory = b"F", obj.T
    else:
        return None
    return _layout(obj.ndim).pack(order, kind.str.encode(), *obj.shape), memory


def make(index: memoryview, numbers: memoryview) -> NDArray[Any]:
    """The array over this memory; `ProtocolError`: there is no such array."""
    import numpy as np

    dimensions, odd = divmod(index.nbytes - 8, 8)
    if odd or not 0 <= dimensions <= _DIMENSIONS_MAX:
        raise ProtocolError(f"an array is described in {index.nbytes} bytes")
    order, name, *shape = _layout(dimensions).unpack(index)
    kind = _kind(name.rstrip(b"\0"))
    if order not in (b"C", b"F") or kind is None or prod(shape) * kind.itemsize != numbers.nbytes:
        raise ProtocolError(f"{numbers.nbytes} bytes are no array of {shape} {name!r}")
    made: NDArray[Any] = np.ndarray(shape, kind, numbers, order="F" if order == b"F" else "C")
    return made


@lru_cache
def _kind(name: bytes) -> Any:
    import numpy as np

    if name[1:2].decode("ascii", "replace") not in _KINDS or not name[2:].isdigit():
        return None
    try:
        return np.dtype(name.decode("ascii"))
    except (TypeError, UnicodeError):
        return None
