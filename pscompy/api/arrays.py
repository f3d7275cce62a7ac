"""Arrays made of a message: its bytes must be exactly theirs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from pscompy.binding import _binding

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


def receive(
    worker: _binding.Worker,
    message: _binding.Message,
    dtype: DTypeLike,
    shape: SupportsIndex | Sequence[SupportsIndex],
) -> NDArray[Any]:
    """Receive a message into a new array. Raises `ValueError` if its length is another one; the
    message then goes back to its place."""
    array: NDArray[Any] = worker.empty(shape, dtype)
    _check(message.status.nbytes, array.nbytes, f"{array.shape} times {array.dtype}")
    message.recv(array)
    return array


def view(
    message: _binding.Message,
    dtype: DTypeLike | None,
    shape: SupportsIndex | Sequence[SupportsIndex] | None,
) -> NDArray[Any]:
    """Receive a message as a read-only array, of bytes without `dtype`, of one dimension without
    `shape`. Raises `ValueError` as `receive` does. Called by the extension."""
    import numpy as np

    kind = np.dtype("u1" if dtype is None else dtype)
    nbytes = message.status.nbytes
    if kind.hasobject or kind.itemsize == 0:
        raise TypeError(f"a view is of plain data of a known size, not of {kind}")
    sizes: Sequence[SupportsIndex]
    if shape is None:
        sizes = [nbytes // kind.itemsize]
    else:
        sizes = [shape] if isinstance(shape, SupportsIndex) else shape
    items = tuple(size.__index__() for size in sizes)
    if any(size < 0 for size in items):
        raise ValueError(f"negative dimensions are not allowed: {items}")
    _check(nbytes, math.prod(items) * kind.itemsize, f"{items} times {kind}")
    return message._recv_view().view(kind).reshape(items)


def _check(nbytes: int, expected: int, array: str) -> None:
    if nbytes != expected:
        raise ValueError(f"the message has {nbytes} bytes, an array of {array} has {expected}")
