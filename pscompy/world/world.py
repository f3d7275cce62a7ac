"""World: the processes of a job, named by rank.

A World is a Session that knows its peers beforehand. A peer's connection is a
small record until somebody uses it; only then its address is asked from the
launcher. Traffic of a World is kept apart by a context number; its barriers
have one of their own, and so has every duplicate.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from pscompy.api.connection import Connection
from pscompy.api.request import ANY_SOURCE, ANY_TAG, Request, Status
from pscompy.api.session import Session
from pscompy.binding import _binding
from pscompy.core import lib
from pscompy.errors import ConnectError, PeerLost, Timeout, Unsupported
from pscompy.world.bootstrap import Bootstrap, attach
from pscompy.world.bootstrap.join import join_up
from pscompy.world.collectives import Barrier, Ranks, highest, spread

if TYPE_CHECKING:
    from pscompy.control.handshake.frames import Identity
    from pscompy.control.peer import Record
    from pscompy.parcel.action_service import Service
    from pscompy.parcel.callers import RankCaller
    from pscompy.parcel.future import Future
    from pscompy.parcel.objects import AnyObjects, Objects


__all__ = ["World"]

logger = logging.getLogger(__name__)

_generations = itertools.count()  # a process may open one World after another


class _Contexts:
    """The numbers of this job's Worlds, as far as this process knows: two each."""

    def __init__(self) -> None:
        self.next: int = lib.PSC_CONTEXT_USER

    def take(self, number: int) -> int:
        """This one, which is not below `next`, and the one behind it. `Unsupported`: there are no
        more, on all ranks."""
        if number + 1 >= lib.PSC_CONTEXT_END:
            raise Unsupported("there are no context numbers left for another World")
        self.next = number + 2
        return number


class World(_binding.Communicator, Session):
    """All ranks of the job that a launcher started; without one, rank 0 of 1.

    Opening it is collective: it returns when all ranks are there. `config` is
    that of `Session`. `world[i]` is the Connection to rank i, and sending,
    receiving and probing take ranks as `dest` and `source`. Leaving a `with`
    block in order waits for the other ranks, at most PSP_FINALIZE_TIMEOUT
    seconds; leaving it by an exception does not wait.

    ConfigError: the launcher is none that pscompy can talk to.
    """

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        self._start(attach(config), config)

    @classmethod
    def from_mpi(
        cls, comm: Any = None, join: str | None = None, config: Mapping[str, object] | None = None
    ) -> World:
        """The ranks of a communicator of mpi4py (None: COMM_WORLD) as a World; collective over it.

        `join` is PSP_JOIN: the communicator is one module of a larger World. MPI goes on as
        before, and ends after the World.
        """
        from pscompy.world.bootstrap.mpi import Mpi

        world = cls.__new__(cls)
        world._start(join_up(Mpi(comm), config, join), config)
        return world

    def _start(self, bootstrap: Bootstrap, config: Mapping[str, object] | None) -> None:
        self._bootstrap = bootstrap
        self._generation = next(_generations)
        self._contexts = _Contexts()
        job = f"{bootstrap.job_id}.{self._generation}"
        self._open(self._name_of(bootstrap.rank), config, bootstrap.rank, job)
        try:
            self._join(self._contexts.take(self._contexts.next))
            self._publish()
        except BaseException:
            self._shut(0)
            raise

    def _join(self, context: int) -> None:
        """Take part with this context, and with the next one in barriers."""
        self._context = context
        self._modules: tuple[int, ...] | None = None  # once anybody wanted to know
        self._peers: list[Connection | None] = [None] * self.size
        self._peers_lock = threading.Lock()
        self._object_peers: dict[int, Connection] = {}
        self._objects_from_any: AnyObjects | None = None
        self._own_actions: Service | None = None
        self._control.set_service(context, self._own_service)
        self._bind(self._hot, self.size, context)
        if self._renumbered is not None:
            self._hot.renumber(context, self._renumbered)
        self._ranks = Ranks(self, context + 1)

    def _publish(self) -> None:
        """Let the other ranks find this one, and wait until they can be found."""
        if self.size == 1:
            return
        self._control.set_peers(self._find_peer)
        told = f"{self.module}:{self.listen().address}"
        self._bootstrap.put(self._key_of(self.rank), told)
        self._bootstrap.barrier()

    # ---- ranks ----

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return self._bootstrap.rank

    @property
    def size(self) -> int:
        """How many ranks there are; `len(world)` too."""
        return self._bootstrap.size

    @property
    def module(self) -> int:
        """The number of the machine's module that this process is in: PSP_MSA_MODULE_ID."""
        number: int = self._config["MSA_MODULE_ID"]
        return number

    @property
    def modules(self) -> tuple[int, ...]:
        """The module of every rank."""
        if self._modules is None:
            joined = getattr(self._bootstrap, "modules", None)
            self._modules = tuple(joined or map(self._module_of, range(self.size)))
        return self._modules

    def _module_of(self, rank: int) -> int:
        return self.module if rank == self.rank else int(self._told_by(rank).partition(":")[0])

    @property
    def _modules_apart(self) -> tuple[int, ...] | None:
        """For collective operations; None: modules do not matter, which all ranks find. Who has
        no number asks nobody: it is so then."""
        if not self.module or not self._config["MSA_AWARENESS"]:
            return None
        modules = self.modules
        return modules if len(set(modules)) > 1 and all(modules) else None

    @property
    def _renumbered(self) -> list[int] | None:
        """The first numbers of the ranks, where they have others here."""
        return None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, rank: SupportsIndex) -> Connection:
        """The connection to a rank. IndexError: it is not in 0 ... size - 1."""
        peer: Connection = self.connection(rank)
        return peer

    def __iter__(self) -> Iterator[Connection]:
        """The connections to all ranks, this one's own among them."""
        return (self[rank] for rank in range(self.size))

    def _peer(self, rank: int) -> Connection:
        """The same connection for whoever asks first: a user, or a peer's link."""
        with self._peers_lock:
            peer = self._peers[rank]
            if peer is None:
                peer = self._peers[rank] = self._make_peer(rank)
            return peer

    def _make_peer(self, rank: int) -> Connection:
        return self._add_connection(
            rank=rank,
            name=self._name_of(rank),
            resolve=(lambda: self._address_of(rank)) if self.size > 1 else None,
            context=self._context,
        )

    def _find_peer(self, identity: Identity) -> Record | None:
        """On the control thread: whose link is it that comes in?"""
        known = 0 <= identity.rank < self.size
        return self._peer(identity.rank)._record if known else None

    def _name_of(self, rank: int) -> str:
        """Names sort as ranks do: the lower name is the one that connects."""
        width = len(str(self._bootstrap.size - 1))
        return f"{rank:0{width}}"

    def _key_of(self, rank: int) -> str:
        return f"pscompy.{self._generation}.{rank}"

    def _address_of(self, rank: int) -> str:
        return self._told_by(rank).partition(":")[2]

    def _told_by(self, rank: int) -> str:
        """Its module and its address."""
        try:
            return self._bootstrap.get(self._key_of(rank), rank)
        except KeyError:
            raise ConnectError(
                f"rank {rank} has told the launcher no address", peer=self._name_of(rank)
            ) from None

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
        (self._object_peers.get(dest) or self._object_peer(dest)).send_obj(obj, tag, timeout, lend)

    def isend_obj(self, obj: object, dest: int, tag: int = 0, lend: bool = False) -> Request:
        """Like send_obj, but returns a Request at once; see Connection.isend_obj."""
        return self._objects_of(dest).isend(obj, tag, lend)

    def recv_obj(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, timeout: float | None = None
    ) -> Any:
        """Receive one object from rank source, or from any; see Connection.recv_obj."""
        if source == ANY_SOURCE:
            return self._any_objects().take(tag, timeout)
        peer = self._object_peers.get(source) or self._object_peer(source)
        return peer.recv_obj(tag, timeout)

    def irecv_obj(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Like recv_obj, but returns a Request at once, whose result is the object and whose
        status tells the source."""
        if source == ANY_SOURCE:
            return self._any_objects().itake(tag)
        return self._objects_of(source).irecv(tag)

    def probe_obj(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, timeout: float | None = None
    ) -> Status:
        """Wait for an object and give its Status; see Connection.probe_obj."""
        if source == ANY_SOURCE:
            return self._any_objects().probe(ANY_SOURCE, tag, timeout)
        return self._objects_of(source).heads.probe(tag, timeout)

    def _object_peer(self, rank: int) -> Connection:
        """Known by its rank from now on, without a lock."""
        peer = self._object_peers[rank] = self[rank]
        return peer

    def _objects_of(self, rank: int) -> Objects:
        return self[rank]._own_objects()

    def _any_objects(self) -> AnyObjects:
        if self._objects_from_any is None:
            from pscompy.parcel.objects import AnyObjects

            context = self._context + lib.PSC_CONTEXT_OBJECTS
            self._objects_from_any = AnyObjects(self._hot, self.size, context, self._objects_of)
        return self._objects_from_any

    # ---- actions ----

    def submit(
        self, rank: int, function: Callable[..., object], /, *args: Any, **kwargs: Any
    ) -> Future:
        """Have a rank call an action; see Connection.submit."""
        return self[rank].submit(function, *args, **kwargs)

    def call(self, rank: int, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Any:
        """submit, and wait for the result."""
        return self[rank].call(function, *args, **kwargs)

    def with_options(
        self, *, timeout: float | None = None, on_sent: Callable[[], object] | None = None
    ) -> RankCaller:
        """This World's submit and call with options; see Connection.with_options."""
        from pscompy.parcel.callers import RankCaller

        return RankCaller(lambda rank: self[rank].with_options(timeout=timeout, on_sent=on_sent))

    def serve(self, timeout: float | None = None) -> None:
        """Run the actions that other ranks ask for until all ranks are here, and what each of them
        has asked for has been answered.

        A rank that has called an action itself runs those of others from then on anyway. Timeout
        (seconds): it goes on.
        """
        service = self._own_service()
        service.start()
        deadline = None if timeout is None else time.monotonic() + timeout
        service.wait_for_answers(timeout)
        self.barrier(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _own_service(self) -> Service:
        with self._peers_lock:
            if self._own_actions is None:
                self._own_actions = self._make_service(
                    self._context, self.size, lambda rank: self[rank]._action_links()
                )
        return self._own_actions

    # ---- all ranks together ----

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until all ranks are here.

        After a `Timeout` (seconds) the barrier goes on: its `request` is it.
        """
        self.ibarrier().wait(timeout)

    def ibarrier(self) -> Request:
        """A barrier to be waited for, or awaited. All ranks begin theirs in the same order."""
        self._check()
        request = self._event()
        Barrier(self._ranks, request).start()
        return request

    def broadcast(self, buf: Any, root: int = 0) -> None:
        """What the buffer holds on rank `root`, into the buffer of all ranks, which all call it.

        Buffers are as for `send` and `recv`, and equally long on all ranks.
        """
        self._check()
        spread(self._ranks, buf, root)

    def split_by_module(self) -> World:
        """The ranks of this one's module as a World of their own; all ranks call it in the same
        order.

        It uses the connections of this World and ends with it.
        """
        self._check()
        context = self._take_contexts()
        here = [rank for rank, module in enumerate(self.modules) if module == self.module]
        return _Part(self, context, here)

    def dup(self) -> World:
        """The same ranks, with traffic of its own; all ranks call it in the same order.

        It uses the connections of this World and ends with it.
        """
        self._check()
        return _Duplicate(self, self._take_contexts())

    def _take_contexts(self) -> int:
        """Two numbers, the same on all ranks, that no World has that any of them is in."""
        return self._contexts.take(highest(self._ranks, self._contexts.next))

    def abort(self, code: int = 1) -> NoReturn:
        """End all ranks at once; `code` becomes the exit code of the job (1 if it is 0)."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._bootstrap.abort(code)
        os._exit(code & 0xFF or 1)

    # ---- the end ----

    def close(self) -> None:
        """Close all connections in order, without waiting for ranks that go on."""
        self._shut(self._config["SHUTDOWN_TIMEOUT"])

    def _meet(self) -> None:
        """Wait for all ranks, through the launcher, so that no connection is made for it.

        Messages move on meanwhile: other ranks may need this one to.
        """
        timeout = self._config["FINALIZE_TIMEOUT"]
        request = self._event()

        def arrive() -> None:
            try:
                self._bootstrap.barrier(timeout)
            except Exception as error:
                request._fail(error)
            else:
                request._complete(None)

        threading.Thread(target=arrive, name="pscompy finalize", daemon=True).start()
        try:
            request.wait()
        except Timeout:
            logger.warning("rank %d has not seen all ranks end within %g s", self.rank, timeout)
        except PeerLost as error:
            logger.info("rank %d ends before others: %s", self.rank, error)

    def __exit__(self, *raised: object) -> None:
        if any(raised):
            self._shut(0)
            return
        try:
            if self.size > 1 and not self._closing:
                self._meet()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<World rank {self.rank} of {self.size}>"


class _Duplicate(World):
    """What `World.dup` returns: everything but the traffic is the original's."""

    def __init__(self, original: World, context: int) -> None:
        self._original = original
        self._join(context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    @property
    def rank(self) -> int:
        return self._original.rank

    @property
    def size(self) -> int:
        return self._original.size

    @property
    def modules(self) -> tuple[int, ...]:
        return self._original.modules

    @property
    def _renumbered(self) -> list[int] | None:
        return self._original._renumbered

    def _make_peer(self, rank: int) -> Connection:
        record = self._original[rank]._record
        return Connection(self._hot, self._control, record, self._context)

    def fileno(self) -> int:
        return self._original.fileno()

    def arm(self) -> bool:
        return self._original.arm()

    def close(self) -> None:
        """Nothing: the World that it came from closes the connections."""

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _Part(_Duplicate):
    """What `World.split_by_module` returns."""

    def __init__(self, original: World, context: int, members: list[int]) -> None:
        self._members = members
        super().__init__(original, context)

    @property
    def rank(self) -> int:
        return self._members.index(self._original.rank)

    @property
    def size(self) -> int:
        return len(self._members)

    @property
    def modules(self) -> tuple[int, ...]:
        return (self.module,) * self.size

    @property
    def _renumbered(self) -> list[int]:
        before = self._original._renumbered
        return self._members if before is None else [before[it] for it in self._members]

    def _make_peer(self, rank: int) -> Connection:
        return super()._make_peer(self._members[rank])
