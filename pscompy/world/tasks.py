"""The tasks of collective calls: from what the program gives to what the core does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pscompy.errors import shown
from pscompy.world import reductions
from pscompy.world.called import OPERATIONS
from pscompy.world.collectives import Reduction, Task, as_root
from pscompy.world.operands import (
    Counts,
    Result,
    apart,
    copying,
    counted,
    operand,
    ordinary,
    parts,
    row,
    same_type,
)
from pscompy.world.reductions import NUMBER, AnyOp, is_number


def reading(task: Task) -> Callable[[], None] | None:
    """Return what reads the operand of a persistent operation before a start; None if the operation
    uses it where the program has it. Raises `TypeError` for a number, which cannot change."""
    if is_number(task.given):
        raise TypeError(
            f"{task.called}_init needs an array, which every start reads, not {shown(task.given)}"
        )
    if task.given is None:
        return None
    array = task.recv if task.send is None else task.send
    return copying(task.given, array)


class Tasks:
    """Makes the tasks of one rank of a communicator."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    def counts(self, counts: Counts) -> NDArray[np.uint64] | None:
        """Return what a rank sends to each in alltoall."""
        return counted(counts, self.size, "alltoall")

    def bcast(self, buf: Any, root: int) -> Task:
        root = as_root(root, self.size)
        given = ordinary(self._buffer(buf, "bcast"), "bcast")
        if self.rank == root:
            array = operand(buf, "bcast")
            return self._whole("bcast", root, array, lambda: buf, buf)
        result = Result(buf, given.shape, given.dtype, "bcast")
        return self._whole("bcast", root, result.array, result.value)

    def _whole(
        self, name: str, root: int, array: Any, value: Callable[[], Any], given: Any = None
    ) -> Task:
        """A task with one buffer, which is the same on all ranks."""
        return Task(name, None, array, count=array.nbytes, root=root, value=value, given=given)

    def reducing(self, name: str, sendbuf: Any, recvbuf: Any, op: AnyOp, root: int = 0) -> Task:
        root = as_root(root, self.size)
        gets = not (
            (name == "reduce" and self.rank != root) or (name == "exscan" and self.rank == 0)
        )
        if is_number(sendbuf) and recvbuf is None:
            return self._reducing_number(name, sendbuf, op, root, gets)
        send = ordinary(self._operand(sendbuf, name), name)
        reduction = reductions.of_arrays(op, send.dtype)
        task = Task(name, send, None, send.size, size=send.itemsize, root=root, reduction=reduction)
        task.given = sendbuf
        if gets or recvbuf is not None:
            same_type(recvbuf, send.dtype, name)
            result = Result(recvbuf, send.shape, send.dtype, name)
            task.recv = result.array
            if recvbuf is sendbuf:
                task.send = result.array
            apart(task.send, task.recv, name)
            task.value = result.value if gets else lambda: None
        return task

    def _reducing_number(self, name: str, number: Any, op: AnyOp, root: int, gets: bool) -> Task:
        which = reductions.named(op)
        if isinstance(which, str):
            return self._folding(name, number, which, root, gets)
        send = np.frombuffer(reductions.pack(number), np.uint8)
        recv = np.empty(NUMBER.size, np.uint8)
        reduction = reductions.of_numbers(which, name)
        return Task(
            *(name, send, recv, 1),
            size=NUMBER.size,
            root=root,
            reduction=reduction,
            value=lambda: reductions.unpack(recv, name) if gets else None,
            given=number,
        )

    def _folding(self, name: str, number: Any, op: str, root: int, gets: bool) -> Task:
        """A reduction of numbers by name: who gets the result has the numbers of all ranks."""
        send = np.frombuffer(reductions.pack(number), np.uint8)
        recv = np.empty(self.size * NUMBER.size, np.uint8)
        end = {"scan": self.rank + 1, "exscan": self.rank}.get(name, self.size)
        reduction = Reduction(OPERATIONS.index(op))
        return Task(
            *("gather" if name == "reduce" else "allgather", send, recv, 1),
            size=NUMBER.size,
            root=root,
            value=lambda: reductions.folded(op, recv, end, name) if gets else None,
            given=number,
            instead_of=name,
            reduction=reduction,
        )

    def reduce_scatter(self, sendbuf: Any, recvbuf: Any, op: AnyOp, counts: Counts) -> Task:
        name = "reduce_scatter"
        send = ordinary(self._operand(sendbuf, name), name)
        which = counted(counts, self.size, name)
        items = parts(send, which, self.size, name)
        mine = items if which is None else int(which[self.rank])
        reduction = reductions.of_arrays(op, send.dtype)
        same_type(recvbuf, send.dtype, name)
        result = Result(recvbuf, (mine, *send.shape[1:]), send.dtype, name)
        apart(send, result.array, name)
        each = row(send) // send.itemsize
        return Task(
            *(name, send, result.array, items * each),
            counts=None if which is None else which * np.uint64(each),
            size=send.itemsize,
            reduction=reduction,
            value=result.value,
            given=sendbuf,
        )

    def gathering(
        self, name: str, sendbuf: Any, recvbuf: Any, counts: Counts, root: int = 0
    ) -> Task:
        root = as_root(root, self.size)
        gets = name == "allgather" or self.rank == root
        if is_number(sendbuf) and recvbuf is None and counts is None:
            return self._gathering_numbers(name, sendbuf, root, gets)
        send = ordinary(self._operand(sendbuf, name), name)
        which = counted(counts, self.size, name)
        self._check_count(send, which, name)
        task = Task(name, send, None, counts=which, size=max(1, row(send)), root=root)
        task.given = sendbuf
        shape = (self.size, *send.shape) if which is None else (int(which.sum()), *send.shape[1:])
        if which is None:
            task.size, task.count = max(1, send.nbytes), int(send.nbytes > 0)
        if gets:
            result = Result(recvbuf, shape, send.dtype, name)
            apart(send, result.array, name)
            task.recv, task.value = result.array, result.value
        return task

    def _check_count(self, send: NDArray[Any], counts: Any, name: str) -> None:
        items = send.shape[0] if send.ndim else 1
        if counts is not None and int(counts[self.rank]) != items:
            raise ValueError(
                f"{name}: axis 0 has {items} items, counts has {int(counts[self.rank])}"
            )

    def _gathering_numbers(self, name: str, number: Any, root: int, gets: bool) -> Task:
        send = np.frombuffer(reductions.pack(number), np.uint8)
        recv = np.empty((self.size, NUMBER.size), np.uint8)
        return Task(
            *(name, send, recv, 1),
            size=NUMBER.size,
            root=root,
            value=lambda: np.array([reductions.unpack(it, name) for it in recv]) if gets else None,
            given=number,
        )

    def scatter(self, sendbuf: Any, recvbuf: Any, root: int, counts: Counts) -> Task:
        root = as_root(root, self.size)
        which = counted(counts, self.size, "scatter")
        given = sendbuf if self.rank == root else recvbuf
        shaped = ordinary(self._buffer(given, "scatter"), "scatter")
        task = Task("scatter", counts=which, size=max(1, row(shaped)), root=root)
        items = shaped.shape[0] if shaped.ndim else 1
        if self.rank == root:
            task.send, task.given = self._operand(sendbuf, "scatter"), sendbuf
            items = parts(shaped, which, self.size, "scatter")
        if which is None:
            task.size, task.count = max(1, items * row(shaped)), int(items * row(shaped) > 0)
        mine = items if which is None else int(which[self.rank])
        if shaped.ndim == 0:
            result = Result(recvbuf, (), shaped.dtype, "scatter")
        else:
            result = Result(recvbuf, (mine, *shaped.shape[1:]), shaped.dtype, "scatter")
        if task.send is not None:
            apart(task.send, result.array, "scatter")
        task.recv, task.value = result.array, result.value
        return task

    def alltoall(
        self, sendbuf: Any, recvbuf: Any, counts: Any = None, arriving: Any = None
    ) -> Task:
        send = ordinary(self._operand(sendbuf, "alltoall"), "alltoall")
        items = parts(send, counts, self.size, "alltoall")
        shape = send.shape if counts is None else (int(arriving.sum()), *send.shape[1:])
        result = Result(recvbuf, shape, send.dtype, "alltoall")
        if recvbuf is sendbuf:
            send = result.array
        apart(send, result.array, "alltoall")
        task = Task("alltoall", send, result.array, size=max(1, row(send)), value=result.value)
        task.counts, task.recv_counts, task.given = counts, arriving, sendbuf
        if counts is None:
            task.size, task.count = max(1, items * row(send)), int(items * row(send) > 0)
        return task

    def _operand(self, value: Any, name: str) -> NDArray[Any]:
        return np.asarray(value) if is_number(value) else operand(value, name)

    def _buffer(self, value: Any, name: str) -> NDArray[Any]:
        if value is None or is_number(value):
            raise TypeError(
                f"{name} needs a buffer on this rank, not {shown(value)}; {name}_obj moves objects"
            )
        return value if isinstance(value, np.ndarray) else operand(value, name)
