"""Arrays made for a message: its bytes must be exactly theirs."""

from __future__ import annotations

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
    if message.status.nbytes != array.nbytes:
        raise ValueError(
            f"the message has {message.status.nbytes} bytes, an array of {array.shape} times"
            f" {array.dtype} has {array.nbytes}"
        )
    message.recv(array)
    return array
