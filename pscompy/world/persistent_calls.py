"""The persistent collective calls of a communicator: each describes an operation that is started
many times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pscompy.world.collectives import Collectives, Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pscompy.api.request import PersistentRequest
    from pscompy.world.operands import Counts
    from pscompy.world.reductions import AnyOp
    from pscompy.world.tasks import Tasks

Buffer = TypeVar("Buffer")


class PersistentCalls:
    """Calls that return a `PersistentRequest`, which `start()` begins; each is like the call
    without `_init`.

    All ranks make them in the same order, and may start what they return in different orders. A
    start reads the operands anew. Numbers cannot change, so an operand is an array; without
    `recvbuf` the result is the same new array after every start.
    """

    if TYPE_CHECKING:
        _collectives: Collectives

        @property
        def _tasks(self) -> Tasks: ...

    def barrier_init(self) -> PersistentRequest[None]:
        """Return a persistent `barrier`."""
        return self._collectives.init(Task("barrier"), None)

    def bcast_init(self, buf: Buffer, *, root: int = 0) -> PersistentRequest[Buffer]:
        """Return a persistent `bcast`."""
        return self._init(self._tasks.bcast(buf, root))

    def allreduce_init(
        self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum"
    ) -> PersistentRequest[NDArray[Any]]:
        """Return a persistent `allreduce`."""
        return self._init(self._tasks.reducing("allreduce", sendbuf, recvbuf, op))

    def reduce_init(
        self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum", root: int = 0
    ) -> PersistentRequest[NDArray[Any] | None]:
        """Return a persistent `reduce`."""
        return self._init(self._tasks.reducing("reduce", sendbuf, recvbuf, op, root))

    def scan_init(
        self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum"
    ) -> PersistentRequest[NDArray[Any]]:
        """Return a persistent `scan`."""
        return self._init(self._tasks.reducing("scan", sendbuf, recvbuf, op))

    def exscan_init(
        self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum"
    ) -> PersistentRequest[NDArray[Any] | None]:
        """Return a persistent `exscan`."""
        return self._init(self._tasks.reducing("exscan", sendbuf, recvbuf, op))

    def reduce_scatter_init(
        self, sendbuf: Any, recvbuf: Any = None, *, op: AnyOp = "sum", counts: Counts = None
    ) -> PersistentRequest[NDArray[Any]]:
        """Return a persistent `reduce_scatter`."""
        return self._init(self._tasks.reduce_scatter(sendbuf, recvbuf, op, counts))

    def gather_init(
        self, sendbuf: Any, recvbuf: Any = None, *, root: int = 0, counts: Counts = None
    ) -> PersistentRequest[NDArray[Any] | None]:
        """Return a persistent `gather`."""
        return self._init(self._tasks.gathering("gather", sendbuf, recvbuf, counts, root))

    def allgather_init(
        self, sendbuf: Any, recvbuf: Any = None, *, counts: Counts = None
    ) -> PersistentRequest[NDArray[Any]]:
        """Return a persistent `allgather`."""
        return self._init(self._tasks.gathering("allgather", sendbuf, recvbuf, counts))

    def scatter_init(
        self, sendbuf: Any = None, recvbuf: Any = None, *, root: int = 0, counts: Counts = None
    ) -> PersistentRequest[Any]:
        """Return a persistent `scatter`."""
        return self._init(self._tasks.scatter(sendbuf, recvbuf, root, counts))

    def alltoall_init(self, sendbuf: Any, recvbuf: Any = None) -> PersistentRequest[NDArray[Any]]:
        """Return a persistent `alltoall` without counts."""
        return self._init(self._tasks.alltoall(sendbuf, recvbuf))

    def _init(self, task: Task) -> PersistentRequest[Any]:
        from pscompy.world.tasks import reading

        return self._collectives.init(task, reading(task))
