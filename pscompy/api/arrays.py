"""Receives messages as arrays; the length of a message must be exactly that of the array. The type
and shape of the array are checked before a message is waited for."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex

from pscompy.api.c import _binding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike, NDArray


def receive(
    worker: _binding.Worker,
    matched: Callable[[], _binding.Message],
    dtype: DTypeLike,
    shape: SupportsIndex | Sequence[SupportsIndex],
) -> NDArray[Any]:
    """Receive the message that `matched` returns into a new array. Raises `ValueError` if the
    message is not exactly as long as the array; the message then goes back to its place in the
    queue."""
    kind, sizes = _kind(dtype), _sizes(shape)
    _check_possible(kind, sizes)
    message = matched()
    try:
        _check_length(message.status.nbytes, kind, sizes)
        array: NDArray[Any] = worker.empty(sizes, kind, private=True)
    except BaseException:
        # Otherwise the traceback would keep the message alive, and out of the queue.
        del message
        raise
    message.recv(array)
    return array


def viewer(
    dtype: DTypeLike | None, shape: SupportsIndex | Sequence[SupportsIndex] | None
) -> Callable[[_binding.Message], NDArray[Any]]:
    """Return a function that receives a message as a read-only array, of bytes without `dtype`, of
    one dimension without `shape`. The function raises `ValueError` as `receive` does. Called by the
    extension."""
    kind = _kind("u1" if dtype is None else dtype)
    sizes = None if shape is None else _sizes(shape)
    _check_possible(kind, sizes or ())
    return partial(_view, kind, sizes)


def _view(
    kind: np.dtype[Any], sizes: tuple[int, ...] | None, message: _binding.Message
) -> NDArray[Any]:
    nbytes = message.status.nbytes
    if sizes is None:
        sizes = (nbytes // kind.itemsize,)
    try:
        _check_length(nbytes, kind, sizes)
    except BaseException:
        del message
        raise
    return message._recv_view().view(kind.base).reshape(sizes + kind.shape)


def _kind(dtype: DTypeLike) -> np.dtype[Any]:
    import numpy as np

    kind = np.dtype(dtype)
    if kind.hasobject or kind.itemsize == 0:
        raise TypeError(f"a message is an array of plain data of a known size, not of {kind}")
    return kind


def _sizes(shape: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, ...]:
    items = [shape] if isinstance(shape, SupportsIndex) else shape
    sizes = tuple(map(operator.index, items))
    if any(size < 0 for size in sizes):
        raise ValueError(f"negative dimensions are not allowed: {sizes}")
    return sizes


def _check_possible(kind: np.dtype[Any], sizes: tuple[int, ...]) -> None:
    """Raise `ValueError` if no array can have this shape: too many dimensions, or bytes."""
    import numpy as np

    np.broadcast_to(np.empty((), kind.base), sizes + kind.shape)


def _check_length(nbytes: int, kind: np.dtype[Any], sizes: tuple[int, ...]) -> None:
    expected = math.prod(sizes) * kind.itemsize
    if nbytes != expected:
        raise ValueError(
            f"the message has {nbytes} bytes, an array of {sizes} times {kind} has {expected}"
        )
