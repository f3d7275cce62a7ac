"""Collective operations of a communicator: what the program gives and gets, and what the core does
with it. The calls are in calls.py.

They travel in a context of their own, so that no receive of the program matches them.
"""

from __future__ import annotations

import array
import itertools
import operator
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pscompy.api.awaited import COLLECTIVES
from pscompy.api.connection import Connection
from pscompy.api.request import PersistentRequest, Request
from pscompy.core import lib
from pscompy.errors import Closed, Mismatch, PeerLost, PscomError, RemoteError, Truncated, shown
from pscompy.world.called import differing
from pscompy.world.job import Job
from pscompy.world.ranks import Ranks

# collective -> the variable that forces its algorithm
_FORCED_BY = {
    "bcast": "COLL_BCAST",
    "reduce": "COLL_REDUCE",
    "allreduce": "COLL_ALLREDUCE",
    "gather": "COLL_GATHER",
    "scatter": "COLL_SCATTER",
    "allgather": "COLL_ALLGATHER",
}
_DIFFERENT = "the ranks have called different operations, roots or lengths"
_RUN, _POST, _INIT = range(3)  # how _collective() does an operation

Combine = Callable[[memoryview, memoryview], bool]
"""Combines the operands of lower ranks with those of higher ranks, in the place of the latter.
Returns False if the function of the program has raised an exception, which it keeps."""


@dataclass
class Reduction:
    """What the core needs to know of an operation on elements of a type."""

    op: int = 0
    type: int = 0
    combine: Combine | None = None  # in place of `op` and `type`
    commutes: bool = True
    raised: list[BaseException] = field(default_factory=list)  # what the function has raised


@dataclass
class Task:
    """One collective operation of this rank, with contiguous buffers. `count` and `counts` (as
    arrays of 64 bits) are numbers of elements."""

    name: str  # the collective that the core does
    send: Any = None
    recv: Any = None
    count: int = 0
    counts: Any = None
    recv_counts: Any = None
    size: int = 1  # bytes of an element
    reduction: Reduction = field(default_factory=Reduction)
    root: int = 0
    value: Callable[[], Any] = lambda: None  # makes the result, once the operation has ended
    given: Any = None  # the operand as the program has given it
    instead_of: str = ""  # the collective that the program has called, if it is not `name`

    @property
    def called(self) -> str:
        """The collective that the program has called."""
        return self.instead_of or self.name


def as_root(root: Any, size: int) -> int:
    """Return the rank that is the root; IndexError if there is no such rank."""
    if root not in range(size):
        last = size - 1
        raise IndexError(f"rank {shown(root)} cannot be the root: ranks are 0 to {last}")
    return operator.index(root)


class Collectives(Ranks):
    """The ranks of a communicator in the context of its collective operations."""

    def __init__(self, job: Job, members: Sequence[int], number: int, kind: str) -> None:
        super().__init__(job, members, number)
        self._kind = kind  # the class of the communicator
        self._asked = False
        self._checks: bool = job.session.config["COLL_CHECK"]
        self._places: array.array[int] | None = None
        # the ranks in the job, if they are others
        self._ranks = None if members == range(job.size) else array.array("i", members)
        self.object_tags = itertools.count()  # tags of the operations on objects
        # how often this rank and another one have met to make a communicator (see Meeting)
        self.meetings: Counter[int] = Counter()

    def maximum(self, number: int) -> int:
        """Return the highest of the ranks' numbers, on every rank."""
        value = bytearray(number.to_bytes(8, sys.byteorder))
        highest = Reduction(lib.PSC_OP_MAX, lib.PSC_TYPE_INT64)
        self.run(Task("allreduce", value, value, 1, size=8, reduction=highest), None)
        return int.from_bytes(value, sys.byteorder)

    def gathered(self, mine: bytes) -> list[bytes]:
        """Return what all ranks give, equally long, on every rank."""
        length = len(mine)
        found = bytearray(length * self.size)
        self.run(Task("allgather", mine, found, 1, size=length), None)
        return [bytes(found[at : at + length]) for at in range(0, len(found), length)]

    def run(self, task: Task, timeout: float | None) -> Any:
        """Run an operation, and return its result."""
        return self._begin(task, _RUN, timeout)

    def start(self, task: Task) -> Request[Any]:
        return self._begin(task, _POST)  # type: ignore[no-any-return]

    def init(self, task: Task, read: Callable[[], None] | None) -> PersistentRequest[Any]:
        """Return the operation as one to be started many times. `read` reads the operand at each
        start; None if it is where the program has it."""
        return self._begin(task, _INIT, read=read)  # type: ignore[no-any-return]

    def _begin(
        self,
        task: Task,
        how: int,
        timeout: float | None = None,
        read: Callable[[], None] | None = None,
    ) -> Any:
        if self._context.closed:
            raise self._exception(lib.PSC_ERR_CLOSED, 0)
        reduction = task.reduction

        def finish(status: int, nbytes: int, rank: int) -> Any:
            if status != lib.PSC_OK:
                error = self._error(task, status, nbytes, rank)
                reduction.raised.clear()  # a persistent operation may be started again
                raise error
            return task.value()

        return self._collective(
            *(
                COLLECTIVES.index(task.name),
                COLLECTIVES.index(task.called),
                self.rank,
                self._ranks,
                self._modules(),
                self._checks,
                _flat(task.send),
                _flat(task.recv),
            ),
            *(task.count, task.counts, task.recv_counts, task.size),
            *(reduction.op, reduction.type, reduction.combine, reduction.commutes),
            *(task.root, self._algorithm(task.name), finish, read, how, timeout),
        )

    def _algorithm(self, name: str) -> str | None:
        """Return the algorithm that PSP_COLL_<NAME> forces, or None."""
        variable = _FORCED_BY.get(name)
        found: str = self._job.session.config[variable] if variable else "auto"
        return None if found == "auto" else found

    def explain(self, name: str, nbytes: int) -> str:
        """Return which algorithm a collective uses, and what each is for."""
        if name not in COLLECTIVES:
            raise ValueError(f"no collective is called {shown(name)}: {', '.join(COLLECTIVES)}")
        forced = self._algorithm(name)
        number, places = COLLECTIVES.index(name), self._modules()
        found = self._explain(number, self.rank, self._ranks, places, self._checks, nbytes, forced)
        by = f" by PSP_{_FORCED_BY[name]}" if forced else ""
        chosen, *others = found.split("\n")
        return "\n  ".join([f"{name} of {nbytes} B, {self.size} ranks: {chosen}{by}", *others])

    def _modules(self) -> array.array[int] | None:
        """Return the module of each rank, if collectives must take modules into account."""
        if not self._asked:
            found = self._job.modules_apart(self._members)
            self._places = None if found is None else array.array("i", found)
            self._asked = True
        return self._places

    def _folded(self, op: str, numbers: bytes) -> Any:
        """Return the numbers of all ranks, as `pack` has packed them, combined. Called by
        `_plain`."""
        from pscompy.world.reductions import folded

        return folded(op, numbers, self.size, "allreduce")

    def _failed(self, coll: int, status: int, nbytes: int, rank: int) -> BaseException:
        """Return the exception for a collective of plain arrays. Called by `_plain`."""
        return self._error(Task(COLLECTIVES[coll]), status, nbytes, rank)

    def _error(self, task: Task, status: int, nbytes: int, rank: int) -> BaseException:
        if task.reduction.raised:
            return task.reduction.raised[0]
        if nbytes == lib.PSC_COLL_DIFFERS:
            first, other = self._differs()
            error: PscomError = Mismatch(f"{task.called}: {differing(first, other, rank)}")
        elif rank < 0:
            return self._exception(status, nbytes)
        else:
            error = self._error_of(rank, task.called, status, nbytes)
        error.rank = rank
        return error

    def _error_of(self, rank: int, name: str, status: int, nbytes: int) -> PscomError:
        """Return the error of an operation that an error on a rank has ended. If another rank has
        told of it, `nbytes` is PSC_COLL_TOLD."""
        told = nbytes == lib.PSC_COLL_TOLD
        if status == lib.PSC_ERR_TRUNCATED:
            sent = f"rank {rank} sent {nbytes} bytes, and this rank expected another length"
            text = f"rank {rank} has received a message of another length" if told else sent
            return Truncated(f"{name}: {text}: {_DIFFERENT}")
        if told and status == lib.PSC_ERR_CANCELLED:
            return RemoteError(f"{name}: the function that combines has failed on rank {rank}")
        if status == lib.PSC_ERR_CLOSED and not told:
            return Closed(f"{name}: rank {rank} has closed its communicator, or its World")
        peer: Connection = self.connection(rank)
        made = peer._exception(status, 0 if told else nbytes)
        lost = PeerLost if status == lib.PSC_ERR_PEER_LOST else PscomError
        lost = Closed if status == lib.PSC_ERR_CLOSED else lost
        return lost(f"{name}: rank {rank} is lost: {made}", peer=peer.peer)

    def __repr__(self) -> str:
        return f"<{self._kind} rank {self.rank} of {self.size}>"


def _flat(buf: Any) -> Any:
    """Return a contiguous array as bytes, if its type is one of which numpy exports no buffer."""
    if getattr(buf, "dtype", None) is None or buf.dtype.kind in "biufc":
        return buf
    return buf.reshape(-1).view("u1")
