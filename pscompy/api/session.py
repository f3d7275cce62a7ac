"""Session: a configuration, its transports, and the connections that use them."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeVar

from pscompy.api import process
from pscompy.api.c import _binding
from pscompy.api.c.guard import guard
from pscompy.api.connection import Connection
from pscompy.api.context import Context
from pscompy.api.dropped import Kept, place, while_alive
from pscompy.api.listener import Socket
from pscompy.api.memory import MemoryRegion, Pin
from pscompy.api.request import Request
from pscompy.api.session_end import SessionEnd
from pscompy.api.siblings import Siblings
from pscompy.api.timeouts import as_seconds
from pscompy.config import logs
from pscompy.config.standard_files import open_standard_files
from pscompy.control import descriptors
from pscompy.control.addresses import Address
from pscompy.control.handshake.identity import make_identity
from pscompy.control.manager import Control
from pscompy.control.peer import Record
from pscompy.control.worker import Worker
from pscompy.core import lib
from pscompy.discovery import registry
from pscompy.errors import Timeout

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray
    from pluggy import PluginManager

    from pscompy.api.c._binding import Sleeper
    from pscompy.control.handshake.identity import Identity
    from pscompy.parcel.door import ActionPeer

S = TypeVar("S", bound="Session")
R = TypeVar("R", bound=Request)


__all__ = ["MemoryRegion", "Pin", "Session"]


def _no_peer(_: Identity) -> None:
    """Find no record for a peer: a session outside a job knows no ranks."""


def _action_peer_to(source: Connection | None) -> ActionPeer | None:
    """Return the links that carry action calls and answers of a plain connection, None if the
    connection is gone."""
    return None if source is None else source._action_peer()


class Session(SessionEnd):
    """Listens, connects, and owns the sockets, connections and memory that it makes.

    `name` is the name that peers see; sessions that connect to each other must have different
    names, and None makes a unique one. `config` are variables that override the environment, with
    or without PSP_: {"SHM": 0}. Several sessions may be open in one process. A context manager,
    also of asyncio: leaving it closes the session. One that is dropped without `close` is closed,
    without waiting for peers, once none of its connections, requests, sockets, regions and memory
    is referred to any more; a ResourceWarning names the line that opened it.

    `ConfigError` if a variable has an invalid value, `OutOfDescriptors` if the limit of this
    process's descriptors is too low.
    """

    _endpoints: dict[int, str]  # names of endpoints, by the context numbers of their communicators

    def __init__(self, name: str | None = None, config: Mapping[str, object] | None = None) -> None:
        self._open(name, config)

    @classmethod
    def _of_job(
        cls: type[S],
        name: str,
        config: Mapping[str, object] | None,
        rank: int,
        job: str,
        find_peer: Callable[[Identity], Record | None],
    ) -> S:
        """Return the session of one rank of a job; see `_open`."""
        made = cls.__new__(cls)
        made._open(name, config, rank, job, find_peer)
        return made

    def _open(
        self,
        name: str | None,
        config: Mapping[str, object] | None,
        rank: int = -1,
        job: str = "",
        find_peer: Callable[[Identity], Record | None] = _no_peer,
    ) -> None:
        """Open the worker and its transports. A World gives its rank, its job, and `find_peer`,
        which returns the record of another rank. `find_peer` is called on the control thread."""
        open_standard_files()
        descriptors.require_session()
        self._config, self._found = registry.load(config)
        self._identity = make_identity(name, rank, job, self._config["MSA_MODULE_ID"])
        self._log_level = logs.configure(self._config)
        self._open_worker(find_peer)
        self._opened = place()
        if self._config["SIGQUIT"]:
            from pscompy.api.dump import dump_on_sigquit

            dump_on_sigquit()

    def _open_beside(
        self: S, job: str, users: str, find_peer: Callable[[Identity], Record | None]
    ) -> S:
        """Open a session with a worker of its own that shares the control thread, the key and the
        listeners with this session, and ends with it. A peer that connects to the new session finds
        its own counterpart by the name `job`; `users` names the worker's users in explanations."""
        self._check()
        descriptors.require_session()
        made = type(self).__new__(type(self))
        made._config, made._found, made._log_level = self._config, self._found, self._log_level
        made._identity = make_identity(
            self.name, self._identity.rank, job, self._config["MSA_MODULE_ID"]
        )
        made._open_worker(find_peer, self)
        made._root = self
        self._siblings.add(made)
        made._on_closed = self._siblings.remove
        made._users = f" of {users}"
        try:
            made._control.start_beside(users)
        except BaseException:
            made._shut(0)
            raise
        return made

    def _open_worker(
        self, find_peer: Callable[[Identity], Record | None], first: Session | None = None
    ) -> None:
        self._forked = False
        self._alive = threading.Lock()
        self._alive.acquire()
        self._closing = False
        self._control_ended = None
        self._sockets = []
        self._regions = {}
        self._siblings = Siblings()
        self._endpoints = {}
        self._on_closed = id
        self._on_abandoned = int
        # the session that ends this one with itself; the sessions of its endpoints keep it alive so
        self._root = self
        self._find_peer = find_peer  # for the control plane, which refers to it weakly
        # connections in use and handlers of active messages, for the worker
        self._in_use, self._handlers = Kept(), Kept()
        with descriptors.typed():
            self._core = Worker(self._config)
        try:
            with descriptors.typed():
                self._open_parts(find_peer, first)
        except BaseException:
            self._core.destroy()
            raise
        self._sleeper = None
        process.add(self)

    def _open_parts(
        self, find_peer: Callable[[Identity], Record | None], first: Session | None
    ) -> None:
        log = self._core.open_log(self._log_level)
        known = () if first is None else first._core.transports.options
        self._core.transports.open(self._found, self._config, known, self._identity.rank)
        if self._config["PROGRESS_THREAD"]:
            self._core.start_thread(self._config["PROGRESS_PATIENCE_US"] * 1000)
        log.read()
        self._binding = _binding.Worker(self._core.address)
        self._binding.belong_to(self, self._in_use, self._handlers)
        control = None if first is None else first._control
        core = self._core

        def adopt_nothing() -> Record:  # the session is about to be closed
            return Record(core.create_connection(-1))

        self._control = Control(
            *(self._config, core, self._identity, while_alive(self._adopt, adopt_nothing)),
            *(self._binding, while_alive(find_peer), control),
        )
        self._plain = Context(
            *(self._binding, self._control, lib.PSC_CONTEXT_PLAIN, 0, _action_peer_to, self)
        )

    # ---- properties ----

    @property
    def name(self) -> str:
        """The name that peers see."""
        return self._identity.name

    @property
    def config(self) -> Mapping[str, Any]:
        """All variables with their values, by name without PSP_."""
        return self._config

    @property
    def plugins(self) -> PluginManager:
        """The manager of pluggy with the plug-ins of all transports, by the transports' names."""
        return self._found.plugins

    @property
    def stats(self) -> dict[str, int]:
        """Counters of the session, by name; `connections_up` counts the connections that came up,
        `connections_made` those among them that this side has begun. It also contains what the
        caches and pools hold now, such as `requests_used`; see the page on troubleshooting. The
        counters of a World's session include those of its endpoints, also of endpoints that were
        closed."""
        self._check()
        return self._stats()

    def _stats(self) -> dict[str, int]:
        rooms = {"rooms_used": self._binding.rooms_used, "rooms_kept": self._binding.rooms_kept}
        return dict(self._siblings.stats(self._core.counters() | rooms | {"workers": 1}))

    @property
    def transports(self) -> dict[str, str]:
        """The transports in order of preference, each with the reason why it cannot be used, an
        empty string if it can."""
        return {option.name: option.reason or "" for option in self._core.transports.options}

    def dump(self) -> str:
        """Return a text for people who look for the cause of a hang: the connections that were
        used, with their lanes, the requests that are not done, and the messages that have no
        receive yet. The endpoints' sessions follow that of their World. Any thread may call it.

        SIGQUIT writes it to stderr, for every session of the process, if PSP_SIGQUIT=1.
        """
        from pscompy.api.dump import dump  # imported late, because few programs need it

        self._check()
        return dump(self)

    # ---- connections ----

    def listen(self, host: str | None = None, port: int = 0) -> Socket:
        """Accept connections at this address; `host` None or "" means all addresses, `port` 0 a
        free port.

        `ConnectError` if the address cannot be bound, `AuthError` if there is no usable key.
        """
        if not isinstance(host, str | None):
            raise TypeError(f"the host to listen on is a str or None, not {type(host).__name__}")
        return self._listen(host or None, operator.index(port))

    def _listen(
        self,
        host: str | None,
        port: int,
        on_connection: Callable[[Connection], object] | None = None,
    ) -> Socket:
        """Do as `listen`. If `on_connection` is given, it is called on the control thread with each
        connection that comes up, and the socket's `accept` returns no connection."""
        self._check()
        sock = Socket(self._event, self._stop_listening, on_connection)
        worker, on_connection = self._binding, while_alive(sock._arrived)
        sock._listener = self._control.listen(
            host, port, lambda record: on_connection(worker.connection(record.id))
        )
        self._sockets.append(sock)
        return sock

    def connect(self, address: str) -> Connection:
        """Return a connection to a socket's address, established lazily by its first use.

        `ConnectError` if the address cannot be parsed; all other failures are reported by the
        first use.
        """
        self._check()
        Address.parse(address)
        return Connection(self._plain, self._new_record(address))

    def _new_record(
        self,
        address: str | None = None,
        rank: int = -1,
        name: str = "",
        resolve: Callable[[], str] | None = None,
        spare: bool = False,
    ) -> Record:
        """Return the record of a lazy connection. For another rank of a job `rank` and `name` are
        known, and `resolve` returns its address at the first use. If the record is `spare`, because
        another one of the rank may be used, the core does not know its rank before `set_rank`."""
        self._check()
        conn = self._core.create_connection(-1 if spare else rank, needs_precon=resolve is None)
        return Record(conn, address, rank, name, resolve)

    def _adopt(self) -> Record:
        """Return the record of a connection that a peer has begun, perhaps while the session
        closes. Called on the control thread."""
        record = Record(self._core.create_connection(-1))
        self._binding.retain(Connection(self._plain, record))
        return record

    def _event(self, kind: type[R]) -> R:
        """Return a request of this type that ends when `_complete` or `_fail` is called."""
        self._check()
        return self._binding.event(kind)

    # ---- messages that name no connection ----

    def on_message(self, id: int, handler: Callable[..., object] | None) -> None:
        """Call handler(connection, header, payload) for each `am_send(id, ...)` that arrives, in
        whichever thread makes progress; a handler of None removes the one before."""
        self._check()
        self._binding.on_message(id, handler)

    def register(self, buf: Any) -> MemoryRegion:
        """Let peers put into this buffer, or get from it. Send them the region's `rkey`.

        `BufferError` unless the buffer is C-contiguous and writable. It stays exported until the
        region, or the session, is closed.
        """
        self._check()
        self._control.prepare_memory()
        region = MemoryRegion(self._binding, buf, self._forget_region)
        self._regions[region] = None
        return region

    # ---- memory ----

    def pin(self, buf: Any) -> Pin:
        """Register memory of the program with all transports, so that messages from it and into it
        need no registration of their own, as with memory of `empty`.

        `BufferError` unless the buffer is C-contiguous and writable. It stays exported until the
        `Pin`, or the session, is closed; no message that uses it may be in flight then.
        """
        self._check()
        pin = Pin(self._binding, buf, self._forget_region)
        self._regions[pin] = None
        return pin

    def _forget_region(self, region: MemoryRegion | Pin) -> None:
        self._regions.pop(region, None)

    def allocate(self, nbytes: int) -> memoryview:
        """Return a block of the session's pool: whole pages that are registered with every
        transport.

        The block returns to the pool when nothing refers to it. If the pool is full
        (PSP_POOL_MAX), it is ordinary memory instead, and `stats` counts it. A child made by fork
        shares the block with its parent, unlike memory that was received.
        """
        self._check()
        return memoryview(self._binding.allocate(nbytes))

    def empty(
        self, shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float
    ) -> NDArray[Any]:
        """Return a numpy array of the session's pool: `numpy.empty` for arrays that are sent often,
        or lent (`isend(array, lend=True)`). A child made by fork shares it; see `allocate`."""
        self._check()
        array: NDArray[Any] = self._binding.empty(shape, dtype)
        return array

    # ---- actions ----

    def serve(self, timeout: float | None = None) -> None:
        """Run the actions that peers call (see `pscompy.action`), until the session is closed,
        which raises `Closed`.

        A session that has called an action itself runs the actions that peers call from then on
        anyway. After a `Timeout` (seconds) the session goes on running them.
        """
        self._check()
        timeout = as_seconds(timeout)
        service = self._plain.service()
        service.start()
        over = self._event(Request)
        try:
            if timeout is None:
                service.serve_until(over)
            else:
                over.wait(timeout)
        except Timeout:
            over._complete(None)
            raise Timeout(f"{self.name} has served for {timeout or 0:g} s") from None

    # ---- other event loops ----

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `progress` would find something, provided
        that `arm` returned True before."""
        self._check()
        return self._own_sleeper().fileno()

    def arm(self) -> bool:
        """Prepare `fileno()` for a sleep. Only one thread may call it.

        Returns True if the caller may sleep. Returns False if something has happened since the
        last call of `progress`: call `progress`, check your requests, and call `arm` again.
        """
        sleeper = self._own_sleeper()
        return not self._binding.pending and sleeper.arm() and not self._binding.pending

    def _own_sleeper(self) -> Sleeper:
        self._check()
        if self._sleeper is None:
            made = self._binding.sleeper()
            with guard:
                if self._sleeper is None:  # no other thread has made one meanwhile
                    self._sleeper = made
        return self._sleeper

    def progress(self) -> int:
        """Make progress once, without waiting; returns the number of events."""
        self._check()
        return self._binding.progress()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Close the session, without blocking the event loop."""
        import asyncio  # imported here, because the import takes 20 ms

        await asyncio.to_thread(self.__exit__, *raised)

    def __repr__(self) -> str:
        state = " inherited" if self._forked else " closed" if self._closing else ""
        return f"<{type(self).__name__} {self.name}{self._users}{state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} stays in its process: send a Socket's address instead, and"
            " open a Session there"
        )
