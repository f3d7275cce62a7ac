"""The collective calls of a communicator, blocking and not. tasks.py prepares what they move, or
`_plain` in C if it needs no preparation, and the core moves it (pscompy/coll)."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from functools import reduce as fold
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pscompy.api.awaited import COLLECTIVES
from pscompy.api.c.guard import import_apart
from pscompy.api.request import Request
from pscompy.api.timeouts import as_seconds
from pscompy.errors import RemoteError, Timeout, describe
from pscompy.world.collectives import Collectives, Task, as_root
from pscompy.world.persistent_calls import PersistentCalls

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pscompy.world.object_calls import ObjectCalls
    from pscompy.world.operands import Counts
    from pscompy.world.reductions import AnyOp
    from pscompy.world.tasks import Tasks

Buffer = TypeVar("Buffer")
# the collectives that Communicator._plain() does, if their arrays need no preparation
_BARRIER, _BCAST, _REDUCE, _ALLREDUCE, _SCAN = map(
    COLLECTIVES.index, ("barrier", "bcast", "reduce", "allreduce", "scan")
)
_EXSCAN, _REDUCE_SCATTER = map(COLLECTIVES.index, ("exscan", "reduce_scatter"))
_GATHER, _SCATTER, _ALLGATHER, _ALLTOALL = map(
    COLLECTIVES.index, ("gather", "scatter", "allgather", "alltoall")
)


class CollectiveCalls(PersistentCalls):
    """Calls that all ranks make, in the same order. Those that begin with i return a Request at
    once, to wait for or to await; the buffers belong to the operation until it has ended.

    Arrays of numpy and other buffers are moved as they are, and need not be contiguous. What was
    received is returned: `recvbuf`, which is as long as the result, or a new array. `recvbuf is
    sendbuf` puts the result in the place of the operand; buffers that overlap otherwise are a
    ValueError. `timeout` is in seconds. After a `Timeout` an operation is still in flight: the
    exception's `request`. A collective cannot be cancelled. What is neither a buffer nor a number
    is a TypeError.
    """

    if TYPE_CHECKING:
        _collectives: Collectives
        size: int
        rank: int

    @cached_property
    def _tasks(self) -> Tasks:
        import_apart("pscompy.world.tasks")
        from pscompy.world.tasks import Tasks

        return Tasks(self.rank, self.size)

    def explain(self, name: str, nbytes: int = 0) -> str:
        """Return in words which algorithm the collective `name` uses, and what each is for.
        `nbytes` are those of the operand, or of one rank's part if each rank has a part."""
        return self._collectives.explain(name, nbytes)

    # ---- barrier and broadcast ----

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until all ranks have begun this barrier."""
        if self._collectives._plain(_BARRIER, None, None, None, 0, timeout) is NotImplemented:
            self._collectives.run(Task("barrier"), timeout)

    def ibarrier(self) -> Request[None]:
        """Like barrier, but returns a Request at once."""
        return self._collectives.start(Task("barrier"))

    def bcast(self, buf: Buffer, *, root: int = 0, timeout: float | None = None) -> Buffer:
        """Copy the contents of the buffer of rank `root` into the buffers of the other ranks,
        which must be as long. Returns `buf`. TypeError if it is None or a number, IndexError if
        there is no rank `root`."""
        done: Buffer = self._collectives._plain(_BCAST, None, buf, None, root, timeout)
        if done is not NotImplemented:
            return done
        return self._collectives.run(self._tasks.bcast(buf, root), timeout)  # type: ignore[no-any-return]

    def ibcast(self, buf: Buffer, *, root: int = 0) -> Request[Buffer]:
        """Like bcast, but returns a Request at once."""
        return self._collectives.start(self._tasks.bcast(buf, root))

    def broadcast(self, buf: Any, root: int = 0) -> None:
        """The older name of bcast."""
        self.bcast(buf, root=root)

    # ---- reductions ----

    @overload
    def allreduce(
        self, sendbuf: complex, recvbuf: None = None, *, op: AnyOp = "sum", timeout: Any = None
    ) -> Any: ...
    @overload
    def allreduce(
        self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum", timeout: Any = None
    ) -> NDArray[Any]: ...
    def allreduce(
        self,
        sendbuf: Any,
        recvbuf: Any = None,
        *,
        op: AnyOp = "sum",
        timeout: float | None = None,
    ) -> Any:
        """Combine the operands of all ranks, which have the same shape, element by element;
        all ranks get the result, of the same bits. `op` is sum, prod, min, max, land, lor, lxor,
        band, bor or bxor, numpy's function for one of these, a function f(a, b) or an `Op`. A
        number gives a number: ranks may mix int, float and complex, and an int beyond 64 bits is an
        OverflowError. TypeError if the operation has no meaning for the type."""
        done = self._collectives._plain(_ALLREDUCE, sendbuf, recvbuf, op, 0, timeout)
        if done is not NotImplemented:
            return done
        task = self._tasks.reducing("allreduce", sendbuf, recvbuf, op)
        return self._collectives.run(task, timeout)

    def iallreduce(self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum") -> Request[Any]:
        """Like allreduce, but returns a Request at once."""
        return self._collectives.start(self._tasks.reducing("allreduce", sendbuf, recvbuf, op))

    def reduce(
        self,
        sendbuf: Any,
        recvbuf: Any = None,
        *,
        op: AnyOp = "sum",
        root: int = 0,
        timeout: float | None = None,
    ) -> Any:
        """Like allreduce, but only rank `root` gets the result; the others get None."""
        done = self._collectives._plain(_REDUCE, sendbuf, recvbuf, op, root, timeout)
        if done is not NotImplemented:
            return done
        task = self._tasks.reducing("reduce", sendbuf, recvbuf, op, root)
        return self._collectives.run(task, timeout)

    def ireduce(
        self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum", root: int = 0
    ) -> Request[Any]:
        """Like reduce, but returns a Request at once."""
        return self._collectives.start(self._tasks.reducing("reduce", sendbuf, recvbuf, op, root))

    def scan(
        self,
        sendbuf: Any,
        recvbuf: Any = None,
        *,
        op: AnyOp = "sum",
        timeout: float | None = None,
    ) -> Any:
        """Like allreduce, of the operands of this rank and all lower ones."""
        done = self._collectives._plain(_SCAN, sendbuf, recvbuf, op, 0, timeout)
        if done is not NotImplemented:
            return done
        return self._collectives.run(self._tasks.reducing("scan", sendbuf, recvbuf, op), timeout)

    def iscan(self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum") -> Request[Any]:
        """Like scan, but returns a Request at once."""
        return self._collectives.start(self._tasks.reducing("scan", sendbuf, recvbuf, op))

    def exscan(
        self,
        sendbuf: Any,
        recvbuf: Any = None,
        *,
        op: AnyOp = "sum",
        timeout: float | None = None,
    ) -> Any:
        """Like allreduce, of the operands of all lower ranks; rank 0 gets None."""
        done = self._collectives._plain(_EXSCAN, sendbuf, recvbuf, op, 0, timeout)
        if done is not NotImplemented:
            return done
        return self._collectives.run(self._tasks.reducing("exscan", sendbuf, recvbuf, op), timeout)

    def iexscan(self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum") -> Request[Any]:
        """Like exscan, but returns a Request at once."""
        return self._collectives.start(self._tasks.reducing("exscan", sendbuf, recvbuf, op))

    def reduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any = None,
        *,
        op: AnyOp = "sum",
        counts: Counts = None,
        timeout: float | None = None,
    ) -> NDArray[Any]:
        """Combine the operands of all ranks, which have the same shape, as allreduce does; each
        rank gets its part of axis 0 of the result. `counts` (the same on all ranks) are the items
        of axis 0 of each rank's part. Without them all parts have the same number, and ValueError
        if the ranks cannot share axis 0 so."""
        if counts is None:
            done: NDArray[Any] = self._collectives._plain(
                _REDUCE_SCATTER, sendbuf, recvbuf, op, 0, timeout
            )
            if done is not NotImplemented:
                return done
        task = self._tasks.reduce_scatter(sendbuf, recvbuf, op, counts)
        return self._collectives.run(task, timeout)  # type: ignore[no-any-return]

    def ireduce_scatter(
        self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum", counts: Counts = None
    ) -> Request[NDArray[Any]]:
        """Like reduce_scatter, but returns a Request at once."""
        return self._collectives.start(self._tasks.reduce_scatter(sendbuf, recvbuf, op, counts))

    # ---- a part for each rank ----

    def gather(
        self,
        sendbuf: Any,
        recvbuf: Any = None,
        *,
        root: int = 0,
        counts: Counts = None,
        timeout: float | None = None,
    ) -> NDArray[Any] | None:
        """Rank `root` gets the operands of all ranks, which have the same shape, as one array of
        shape `(size, *shape)`; the others get None. Numbers give an array of shape (size,). With
        `counts` (the same on all ranks), the items of axis 0 of each rank's operand,
        the operands are joined along axis 0."""
        if counts is None:
            done: NDArray[Any] | None = self._collectives._plain(
                _GATHER, sendbuf, recvbuf, None, root, timeout
            )
            if done is not NotImplemented:
                return done
        task = self._tasks.gathering("gather", sendbuf, recvbuf, counts, root)
        return self._collectives.run(task, timeout)  # type: ignore[no-any-return]

    def igather(
        self, sendbuf: Any, recvbuf: Any = None, *, root: int = 0, counts: Counts = None
    ) -> Request[NDArray[Any] | None]:
        """Like gather, but returns a Request at once."""
        return self._collectives.start(
            self._tasks.gathering("gather", sendbuf, recvbuf, counts, root)
        )

    def allgather(
        self,
        sendbuf: Any,
        recvbuf: Any = None,
        *,
        counts: Counts = None,
        timeout: float | None = None,
    ) -> NDArray[Any]:
        """Like gather, but all ranks get the result."""
        if counts is None:
            done: NDArray[Any] = self._collectives._plain(
                _ALLGATHER, sendbuf, recvbuf, None, 0, timeout
            )
            if done is not NotImplemented:
                return done
        task = self._tasks.gathering("allgather", sendbuf, recvbuf, counts)
        return self._collectives.run(task, timeout)  # type: ignore[no-any-return]

    def iallgather(
        self, sendbuf: Any, recvbuf: Any = None, *, counts: Counts = None
    ) -> Request[NDArray[Any]]:
        """Like allgather, but returns a Request at once."""
        return self._collectives.start(self._tasks.gathering("allgather", sendbuf, recvbuf, counts))

    def scatter(
        self,
        sendbuf: Any = None,
        recvbuf: Any = None,
        *,
        root: int = 0,
        counts: Counts = None,
        timeout: float | None = None,
    ) -> Any:
        """Each rank gets its part of axis 0 of the sendbuf of rank `root`. The other ranks need a
        `recvbuf` as long as their part, else TypeError; their `sendbuf` is not used. `counts` (the
        same on all ranks) are the items of axis 0 of each rank's part. Without them all parts have
        the same number, and ValueError on rank `root` if axis 0 cannot be shared so."""
        if counts is None:
            done = self._collectives._plain(_SCATTER, sendbuf, recvbuf, None, root, timeout)
            if done is not NotImplemented:
                return done
        task = self._tasks.scatter(sendbuf, recvbuf, root, counts)
        return self._collectives.run(task, timeout)

    def iscatter(
        self, sendbuf: Any = None, recvbuf: Any = None, *, root: int = 0, counts: Counts = None
    ) -> Request[Any]:
        """Like scatter, but returns a Request at once."""
        return self._collectives.start(self._tasks.scatter(sendbuf, recvbuf, root, counts))

    def alltoall(
        self,
        sendbuf: Any,
        recvbuf: Any = None,
        *,
        counts: Counts = None,
        timeout: float | None = None,
    ) -> NDArray[Any]:
        """Part k of axis 0 of each rank's operand goes to rank k; each rank gets the parts of all
        ranks in their order, joined along axis 0. `counts` are the items that this rank sends to
        each, by default the same number; they are given on all ranks or on none."""
        if counts is None:
            done: NDArray[Any] = self._collectives._plain(
                _ALLTOALL, sendbuf, recvbuf, None, 0, timeout
            )
            if done is not NotImplemented:
                return done
            return self._collectives.run(self._tasks.alltoall(sendbuf, recvbuf), timeout)  # type: ignore[no-any-return]
        deadline = _deadline(timeout)
        which = self._tasks.counts(counts)
        arriving = self._collectives.run(self._tasks.alltoall(which, None), timeout)
        task = self._tasks.alltoall(sendbuf, recvbuf, which, arriving)
        return self._collectives.run(task, _left(deadline))  # type: ignore[no-any-return]

    def ialltoall(self, sendbuf: Any, recvbuf: Any = None) -> Request[NDArray[Any]]:
        """Like alltoall without counts, but returns a Request at once."""
        return self._collectives.start(self._tasks.alltoall(sendbuf, recvbuf))

    # ---- objects: trees and pairs of messages, as send_obj sends them ----

    def bcast_obj(self, obj: Any = None, *, root: int = 0, timeout: float | None = None) -> Any:
        """Return the object that rank `root` gives, on all ranks."""
        return self._objects("bcast_obj", timeout).bcast(obj, as_root(root, self.size))

    def gather_obj(
        self, obj: Any, *, root: int = 0, timeout: float | None = None
    ) -> list[Any] | None:
        """Rank `root` gets the list of the objects of all ranks; the others get None."""
        return self._objects("gather_obj", timeout).gather(obj, as_root(root, self.size))

    def allgather_obj(self, obj: Any, *, timeout: float | None = None) -> list[Any]:
        """Return the list of the objects of all ranks."""
        objects = self._objects("allgather_obj", timeout)
        return objects.bcast(objects.gather(obj, 0), 0)  # type: ignore[no-any-return]

    def scatter_obj(
        self, objs: Sequence[Any] | None = None, *, root: int = 0, timeout: float | None = None
    ) -> Any:
        """Each rank gets its object of the sequence that rank `root` gives."""
        return self._objects("scatter_obj", timeout).scatter(objs, as_root(root, self.size))

    def alltoall_obj(self, objs: Sequence[Any], *, timeout: float | None = None) -> list[Any]:
        """Object k of each rank's sequence goes to rank k. Returns the list of those for this
        rank."""
        return self._objects("alltoall_obj", timeout).alltoall(objs)

    def reduce_obj(
        self, obj: Any, *, op: Any = operator.add, root: int = 0, timeout: float | None = None
    ) -> Any:
        """Combine the objects of all ranks in the order of the ranks. `op` is a function f(a, b),
        or a name as for reduce. Rank `root` gets the result, the others get None."""
        found = self._objects("reduce_obj", timeout).gather(obj, as_root(root, self.size))
        return None if found is None else fold(_of_objects(op), found)

    def allreduce_obj(
        self, obj: Any, *, op: Any = operator.add, timeout: float | None = None
    ) -> Any:
        """Like reduce_obj, but all ranks get the result. What `op` raises is raised on rank 0, and
        is a RemoteError on the others."""
        objects = self._objects("allreduce_obj", timeout)
        found = objects.gather(obj, 0)
        failure: Exception | None = None
        outcome = None, ""
        if found is not None:
            try:
                outcome = fold(_of_objects(op), found), ""
            except Exception as error:
                failure, outcome = error, (None, describe(error))
        result, told = objects.bcast(outcome, 0)
        if failure is not None:
            raise failure
        if told:
            raise RemoteError(f"allreduce_obj: the function that combines has failed: {told}")
        return result

    @cached_property
    def _object_calls(self) -> type[ObjectCalls]:
        import_apart("pscompy.world.object_calls")
        from pscompy.world.object_calls import ObjectCalls

        return ObjectCalls

    def _objects(self, name: str, timeout: float | None) -> ObjectCalls:
        return self._object_calls(self._collectives, name, timeout)


def _of_objects(op: Any) -> Callable[[Any, Any], Any]:
    if op is operator.add:  # as in most calls
        return operator.add  # type: ignore[no-any-return]
    import_apart("pscompy.world.reductions")
    from pscompy.world import reductions

    which = reductions.named(op)
    if isinstance(which, reductions.Op):
        return which.function
    return reductions.OF_OBJECTS[which]


def _deadline(timeout: float | None) -> float | None:
    seconds = as_seconds(timeout)
    return None if seconds is None else time.monotonic() + seconds


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    if deadline < time.monotonic():
        raise Timeout("alltoall: the counts have arrived too late")
    return deadline - time.monotonic()
