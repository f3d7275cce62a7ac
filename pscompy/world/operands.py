"""Arrays and other buffers of collective operations: what a rank gives, where the result goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pscompy.errors import shown

Counts = Sequence[int] | NDArray[Any] | None
_ARRAYS_ONLY = ("scan", "exscan", "reduce_scatter")  # have no call of the name with _obj


def or_objects(what: str) -> str:
    """Return the end of an error's text, which names the call that takes objects, if any."""
    return "" if what in _ARRAYS_ONLY else f": use {what}_obj"


def operand(value: Any, what: str) -> NDArray[Any]:
    """Return what a rank gives as a contiguous array, without a copy where possible."""
    try:
        return contiguous(value if isinstance(value, np.ndarray) else np.asarray(memoryview(value)))
    except TypeError:
        raise TypeError(
            f"{what} takes arrays, other buffers and numbers, not {shown(value)}{or_objects(what)}"
        ) from None


def contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy if it is not contiguous or not aligned."""
    return array if array.flags.carray else np.require(array, requirements=["C", "A"])


def ordinary(array: NDArray[Any], what: str) -> NDArray[Any]:
    if array.dtype.hasobject:
        raise TypeError(f"{what} moves no arrays of Python's objects{or_objects(what)}")
    return array


def copying(given: Any, array: NDArray[Any]) -> Callable[[], None] | None:
    """Return what copies an operand of the program into the array that `operand` has made of it;
    None if they are the same memory."""
    original = given if isinstance(given, np.ndarray) else np.asarray(memoryview(given))
    if np.may_share_memory(original, array) or not array.nbytes:
        return None
    return lambda: np.copyto(array, original)


class Result:
    """The memory that a result is received into: the program's, a copy of it if that is not
    contiguous, or new memory."""

    def __init__(self, given: Any, shape: tuple[int, ...], dtype: Any, what: str) -> None:
        self._given: NDArray[Any] | None = None
        self.array: NDArray[Any]
        self._object = given
        if given is None:
            self.array = np.empty(shape, dtype)
            return
        self._given = given if isinstance(given, np.ndarray) else np.asarray(memoryview(given))
        if not self._given.flags.writeable:
            raise ValueError(f"the recvbuf of {what} is read-only")
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        if self._given.nbytes != nbytes:
            raise ValueError(
                f"the recvbuf of {what} has {self._given.nbytes} bytes, the result has {nbytes}"
            )
        self.array = contiguous(self._given)

    def value(self) -> Any:
        """Return the result, once it has arrived."""
        if self._given is None:
            return self.array
        if self.array is not self._given:
            self._given[...] = self.array
        return self._object


def same_type(given: Any, dtype: np.dtype[Any], what: str) -> None:
    """Raise `TypeError` if the array for a result has another type than the operands."""
    if isinstance(given, np.ndarray) and given.dtype != dtype:
        raise TypeError(f"{what}: the recvbuf has {given.dtype}, the operands have {dtype}")


def apart(send: NDArray[Any], recv: NDArray[Any], what: str) -> None:
    """Raise `ValueError` if two buffers overlap that are not the same."""
    if send is recv or not np.may_share_memory(send, recv) or not send.nbytes or not recv.nbytes:
        return
    starts = {it.__array_interface__["data"][0] for it in (send, recv)}
    if len(starts) > 1 or send.nbytes != recv.nbytes:
        raise ValueError(f"{what}: sendbuf and recvbuf overlap, and are not the same")


def counted(counts: Counts, size: int, what: str) -> NDArray[np.uint64] | None:
    """Return the counts of all ranks, as the core takes them."""
    if counts is None:
        return None
    given = np.asarray(counts)
    if given.shape != (size,) or given.dtype.kind not in "iu" or (given < 0).any():
        raise ValueError(f"the counts of {what} are {size} numbers, one for each rank, from 0 on")
    return np.ascontiguousarray(given, np.uint64)


def parts(array: NDArray[Any], counts: NDArray[np.uint64] | None, size: int, what: str) -> int:
    """Return how many items of axis 0 each rank's part has, of an array with a part for each."""
    items = array.shape[0] if array.ndim else 1
    if counts is not None:
        if int(counts.sum()) != items:
            raise ValueError(
                f"the counts of {what} add up to {int(counts.sum())}, axis 0 has {items} items"
            )
        return 0
    if items % size:
        raise ValueError(
            f"{what}: axis 0 has {items} items, which {size} ranks cannot share: give counts"
        )
    return items // size


def row(array: NDArray[Any]) -> int:
    """Return the bytes of one item of axis 0."""
    shape = array.shape[1:]
    return math.prod(shape) * array.itemsize
