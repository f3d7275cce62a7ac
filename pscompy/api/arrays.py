"""Receives messages as arrays; the length of a message must be exactly that of the array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from pscompy.binding import _binding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike, NDArray


def receive(
    worker: _binding.Worker,
    message: _binding.Message,
    dtype: DTypeLike,
    shape: SupportsIndex | Sequence[SupportsIndex],
) -> NDArray[Any]:
    """Receive a message into a new array. Raises `ValueError` if the message is not exactly as long
    as the array; the message then goes back to its place in the queue."""
    try:
        array: NDArray[Any] = worker.empty(shape, dtype)
        _check(message.status.nbytes, array.nbytes, f"{array.shape} times {array.dtype}")
    except BaseException:
        # Otherwise the traceback would keep the message alive, and out of the queue.
        del message
        raise
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

    try:
        kind = np.dtype("u1" if dtype is None else dtype)
        sizes = _sizes(message.status.nbytes, kind, shape) + kind.shape
        np.broadcast_to(np.empty((), kind.base), sizes)  # fails if no array can have this shape
    except BaseException:
        del message
        raise
    return message._recv_view().view(kind.base).reshape(sizes)


def _sizes(
    nbytes: int, kind: np.dtype[Any], shape: SupportsIndex | Sequence[SupportsIndex] | None
) -> tuple[int, ...]:
    """Return the shape of an array of exactly `nbytes` bytes."""
    if kind.hasobject or kind.itemsize == 0:
        raise TypeError(f"a view is of plain data of a known size, not of {kind}")
    if shape is None:
        shape = nbytes // kind.itemsize
    items = [shape] if isinstance(shape, SupportsIndex) else shape
    sizes = tuple(size.__index__() for size in items)
    if any(size < 0 for size in sizes):
        raise ValueError(f"negative dimensions are not allowed: {sizes}")
    _check(nbytes, math.prod(sizes) * kind.itemsize, f"{sizes} times {kind}")
    return sizes


def _check(nbytes: int, expected: int, array: str) -> None:
    if nbytes != expected:
        raise ValueError(f"the message has {nbytes} bytes, an array of {array} has {expected}")
