"""Communicator: ranks that exchange messages, objects and actions, apart from all others.

A communicator is a group of ranks and a context: no receive of one communicator matches a message
of another. All communicators of a job use the same connections, each of which is established at
its first use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeVar

from pscompy.api import arrays
from pscompy.api.c.guard import import_apart
from pscompy.api.connection import Connection
from pscompy.api.memory import MemoryRegion, Pin
from pscompy.api.request import ANY_SOURCE, ANY_TAG, Request, Status
from pscompy.api.session import Session
from pscompy.api.timeouts import as_seconds
from pscompy.core import lib
from pscompy.errors import Timeout, shown
from pscompy.world.calls import CollectiveCalls
from pscompy.world.collectives import Collectives
from pscompy.world.derived import DerivedCalls
from pscompy.world.job import Job
from pscompy.world.ranks import Ranks

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from pscompy.parcel.callers import RankCaller
    from pscompy.parcel.future import Future
    from pscompy.parcel.objects import AnyObjects

__all__ = ["Communicator"]

C = TypeVar("C", bound="Communicator")


class Communicator(DerivedCalls, CollectiveCalls, Ranks):
    """Some ranks of a job. Made by `World`, and by calls of another one: `dup`, `split`, `create`
    and others.

    `comm[i]` is the Connection to rank i; sending takes a rank as `dest`, receiving and probing
    take one as `source`. A context manager: leaving it closes it. What a communicator keeps is
    freed by `close`, or with its session.
    """

    def __init__(self, job: Job, members: Sequence[int], number: int, endpoint: str = "") -> None:
        super().__init__(job, members, number)
        # name of the endpoint (see `endpoints`) that this communicator is or was made from, or ""
        self._endpoint = endpoint
        if endpoint:
            job.session._endpoints[number] = endpoint
        self._collectives = Collectives(job, members, number + 1, type(self).__name__)
        self._objects_from_any: AnyObjects | None = None
        # the barrier that a `serve` had begun when it timed out
        self._served: Request[None] | None = None

    def close(self) -> None:
        """Free what this communicator keeps for messages. Local: the other ranks may go on using
        it. Its connections, which all communicators share, stay. Idempotent.

        Receives that no message has matched end with `Closed`, as do collective operations once no
        peer uses their buffers; so does every later call. Messages that no receive has matched are
        dropped, also those that arrive later, and the sends of long ones end with `Closed` at their
        rank; only that of an object with several long buffers is not ended. Sends go on.
        """
        if self._context.closed:
            return
        number = self._context.number
        for ranks in (self, self._collectives):
            ranks._context.closed = True
            ranks._unbind()
        self.session._core.close_context(number)
        self.session._endpoints.pop(number, None)

    def _check(self) -> None:
        """Raise `Closed` if this communicator or the session was closed."""
        self.session._check()
        if self._context.closed:
            raise self._exception(lib.PSC_ERR_CLOSED, 0)

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self: C) -> C:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.__exit__(*raised)

    # ---- ranks ----

    @property
    def session(self) -> Session:
        """The session that all communicators of the job share: addresses, variables, event
        loops."""
        return self._job.session

    @property
    def module(self) -> int:
        """The number of the machine's module that this process is in: PSP_MSA_MODULE_ID."""
        return self._job.module

    @property
    def modules(self) -> tuple[int, ...]:
        """The module of every rank."""
        self._check()
        modules = self._job.modules
        return tuple(modules[member] for member in self._members)

    if TYPE_CHECKING:

        def connection(self, rank: SupportsIndex, /) -> Connection: ...

    def __getitem__(self, rank: SupportsIndex) -> Connection:
        """Return the connection to a rank. IndexError if it is not in 0 ... size - 1."""
        return self.connection(rank)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Connection]:
        """Return the connections to all ranks, the connection of this rank to itself included."""
        return (self.connection(rank) for rank in range(self.size))

    def _derive(
        self, members: Sequence[int], number: int, job: Job | None = None, endpoint: str = ""
    ) -> Communicator:
        """Return a communicator of these ranks of the job, with these context numbers. `job` and
        `endpoint` are by default those of this communicator."""
        return Communicator(job or self._job, members, number, endpoint or self._endpoint)

    # ---- arrays ----

    def recv_array(
        self,
        dtype: DTypeLike,
        shape: SupportsIndex | Sequence[SupportsIndex],
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        timeout: float | None = None,
    ) -> NDArray[Any]:
        """Receive one message from rank source, or from any, as a new array; see
        Connection.recv_array."""
        matched = partial(self.mprobe, source, tag, timeout)
        return arrays.receive(self.session._binding, matched, dtype, shape)

    # ---- objects ----

    def send_obj(
        self,
        obj: object,
        dest: int,
        tag: int = 0,
        timeout: float | None = None,
        lend: bool = False,
    ) -> None:
        """Send any object that can be pickled to rank dest; see Connection.send_obj."""
        self._named("dest", dest).send_obj(obj, tag, timeout, lend)

    def isend_obj(self, obj: object, dest: int, tag: int = 0, lend: bool = False) -> Request[None]:
        """Like send_obj, but returns a Request at once; see Connection.isend_obj."""
        return self._named("dest", dest).isend_obj(obj, tag, lend)

    def recv_obj(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, timeout: float | None = None
    ) -> Any:
        """Receive one object from rank source, or from any; see Connection.recv_obj."""
        if source == ANY_SOURCE:
            return self._any_objects().take(tag, timeout)
        return self._named("source", source).recv_obj(tag, timeout)

    def irecv_obj(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request[Any]:
        """Like recv_obj, but returns a Request at once, whose result is the object and whose
        status names the source."""
        if source == ANY_SOURCE:
            return self._any_objects().itake(tag)
        return self._named("source", source).irecv_obj(tag)

    def probe_obj(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, timeout: float | None = None
    ) -> Status:
        """Wait for an object and return its Status; see Connection.probe_obj."""
        if source == ANY_SOURCE:
            return self._any_objects().probe(ANY_SOURCE, tag, timeout)
        return self._named("source", source).probe_obj(tag, timeout)

    def _named(self, argument: str, rank: int) -> Connection:
        """Return the connection to the rank that is given as `argument`, which a TypeError
        names."""
        try:
            return self.connection(rank)
        except TypeError:
            raise TypeError(f"{argument} is the number of a rank, not {shown(rank)}") from None

    def _any_objects(self) -> AnyObjects:
        if self._objects_from_any is None:
            import_apart("pscompy.parcel.objects")
            from pscompy.parcel.objects import AnyObjects

            self._objects_from_any = AnyObjects(
                self.session._binding,
                self.size,
                self._context.number + lib.PSC_CONTEXT_OBJECTS,
                lambda rank: self.connection(rank)._own_objects(),
                self._exception,
            )
        return self._objects_from_any

    # ---- actions ----

    def submit(
        self, rank: int, function: Callable[..., object], /, *args: Any, **kwargs: Any
    ) -> Future:
        """Have a rank call an action (see `pscompy.action`) with these arguments; see
        Connection.submit."""
        return self.connection(rank).submit(function, *args, **kwargs)

    def call(self, rank: int, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Any:
        """Call `submit`, and wait for the result."""
        return self.connection(rank).call(function, *args, **kwargs)

    def with_options(
        self, *, timeout: float | None = None, on_sent: Callable[[], object] | None = None
    ) -> RankCaller:
        """Return `submit` and `call` of this communicator with options; see
        Connection.with_options."""
        from pscompy.parcel.callers import RankCaller

        timeout = as_seconds(timeout)
        return RankCaller(
            lambda rank: self.connection(rank).with_options(timeout=timeout, on_sent=on_sent)
        )

    def serve(self, timeout: float | None = None) -> None:
        """Run the actions that other ranks call, until all ranks have called `serve` and all calls
        of all ranks have been answered.

        A rank that has called an action itself runs the actions that others call from then on
        anyway. After a `Timeout` (seconds) the rank goes on running them, and the next `serve`
        waits for what is left.
        """
        timeout = as_seconds(timeout)
        service = self._context.service()
        service.start()
        deadline = None if timeout is None else time.monotonic() + timeout
        service.wait_for_answers(timeout)
        over, self._served = self._served or self.ibarrier(), None
        if deadline is None:
            return service.serve_until(over)
        try:
            over.wait(max(0.0, deadline - time.monotonic()))
        except Timeout:
            self._served = over
            raise Timeout(f"rank {self.rank} has served for {timeout:g} s") from None

    # ---- memory and counters: calls of the session that every program needs ----

    @property
    def stats(self) -> dict[str, int]:
        """Counters by name; see Session.stats."""
        return self.session.stats

    def empty(
        self, shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float
    ) -> NDArray[Any]:
        """Return a numpy array in memory that is registered with every transport, and that a child
        made by fork shares; see Session.empty."""
        return self.session.empty(shape, dtype)

    def shared(
        self, shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float
    ) -> NDArray[Any]:
        """Return a writable array, of zeros, whose memory all ranks share. They must be on one
        node: see split_by_node. What a rank writes, others see after a barrier. The memory is freed
        when no rank has the array any more. Collective.

        ValueError on all ranks if they are not on one node, or give different shapes or types;
        OSError on all ranks if one cannot have the memory.
        """
        self._check()
        import_apart("pscompy.world.shared")
        from pscompy.world.shared import shared

        return shared(self._collectives, self.session._identity.host, shape, dtype)

    def allocate(self, nbytes: int) -> memoryview:
        """Return a block of memory that is registered with every transport, and that a child made
        by fork shares; see Session.allocate."""
        return self.session.allocate(nbytes)

    def pin(self, buf: Any) -> Pin:
        """Register memory of the program with all transports; see Session.pin."""
        return self.session.pin(buf)

    def register(self, buf: Any) -> MemoryRegion:
        """Let peers put into this buffer, or get from it; see Session.register."""
        return self.session.register(buf)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} rank {self.rank} of {self.size}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} stays in its process")
