"""Session: everything that a process has open of pscompy, and where it begins."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeVar

from pscompy.api.connection import Connection
from pscompy.api.context import Context
from pscompy.api.listener import Socket
from pscompy.api.memory import MemoryRegion, Pin
from pscompy.api.request import Request
from pscompy.binding import _binding
from pscompy.config import logs
from pscompy.control import descriptors
from pscompy.control.addresses import Address
from pscompy.control.handshake.identity import make_identity
from pscompy.control.manager import Control
from pscompy.control.peer import Record
from pscompy.control.worker import Engine
from pscompy.core import lib
from pscompy.discovery import registry
from pscompy.errors import Closed, PscomError, Timeout

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray
    from pluggy import PluginManager

    from pscompy.binding._binding import Sleeper
    from pscompy.control.handshake.frames import Identity
    from pscompy.parcel.action_service import Links

S = TypeVar("S", bound="Session")
R = TypeVar("R", bound=Request)


__all__ = ["MemoryRegion", "Pin", "Session"]


# Closed at exit, the last one first: it may stand on others, as a transport's session does.
# A dropped one lives as its connections do.
_open_sessions: dict[Session, None] = {}
_inherited = "inherited through fork: open a new Session in the child"


def _no_peer(_: Identity) -> None:
    """A session outside a job knows no ranks."""


def _links_to(source: Connection | None) -> Links | None:
    """The calls and answers of a plain connection, None if it is gone."""
    return None if source is None else source._action_links()


class Session:
    """A place among others: it listens, connects, and owns what comes of that.

    `name` is what peers see (unique among those that meet; None: one is made). `config` are
    variables that come before the environment, with or without PSP_: {"SHM": 0}. Several sessions
    may be open in one process. A context manager, also of asyncio: leaving it closes.

    `ConfigError`: a variable has a value that it cannot have. `OutOfDescriptors`: this process may
    have too few descriptors.
    """

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
        """The session of one rank of a job; see `_open`."""
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
        """Open everything. A World names its rank and its job, and finds the records of the other
        ranks; `find_peer` is called on the control thread."""
        descriptors.require_session()
        self._lock = threading.Lock()
        self._forked = False
        self._closed = threading.Event()
        self._closing = False
        self._sockets: set[Socket] = set()
        self._regions: set[MemoryRegion | Pin] = set()
        self._config, found = registry.load(config)
        self._plugins = found.plugins
        self._identity = make_identity(name, rank, job, self._config["MSA_MODULE_ID"])
        log_level = logs.configure(self._config)
        with descriptors.typed():
            self._engine = Engine(self._config)
        try:
            with descriptors.typed():
                self._open_parts(found, log_level, find_peer)
        except BaseException:
            self._engine.destroy()
            raise
        self._sleeper: Sleeper | None = None
        _open_sessions[self] = None

    def _open_parts(
        self,
        found: Sequence[registry.Found],
        log_level: int,
        find_peer: Callable[[Identity], Record | None],
    ) -> None:
        self._engine.open_log(log_level)
        self._engine.open(found, self._config)
        if self._config["PROGRESS_THREAD"]:
            self._engine.start_thread()
        self._engine.read_log()
        self._hot = _binding.Worker(self._engine.address)
        self._control = Control(
            self._config, self._engine, self._identity, self._adopt, self._hot, find_peer
        )
        self._plain = self._context(lib.PSC_CONTEXT_PLAIN, 0, _links_to)

    # ---- who and what ----

    @property
    def name(self) -> str:
        """What peers see of it."""
        return self._identity.name

    @property
    def config(self) -> Mapping[str, Any]:
        """All variables with their values, by name without PSP_."""
        return self._config

    @property
    def plugins(self) -> PluginManager:
        """The manager of pluggy with the plug-ins of all transports, by the transports' names."""
        return self._plugins

    @property
    def stats(self) -> dict[str, int]:
        """Counters of the session, by name; `connections_up` counts those that came up,
        `connections_made` those of them that this side has made."""
        self._check()
        return self._engine.counters()

    @property
    def transports(self) -> dict[str, str]:
        """Each transport, in order, with the reason why it cannot be used ("" if it can)."""
        return {option.name: option.reason or "" for option in self._engine.options}

    # ---- connections ----

    def listen(self, host: str | None = None, port: int = 0) -> Socket:
        """Take connections in; `host` None: at all addresses, `port` 0: at a free one.

        `ConnectError`: the address cannot be bound. `AuthError`: there is no usable key.
        """
        return self._listen(host, port)

    def _listen(
        self,
        host: str | None,
        port: int,
        on_connection: Callable[[Connection], object] | None = None,
    ) -> Socket:
        """`on_connection` gets each connection that comes up, instead of `accept`, on the control
        thread."""
        self._check()
        sock = Socket(self._event, self._stop_listening)
        deliver = on_connection or sock._deliver
        sock._listener = self._control.listen(
            host, port, lambda record: deliver(self._hot.connection(record.id))
        )
        self._sockets.add(sock)
        return sock

    def connect(self, address: str) -> Connection:
        """A connection to a socket's address. It connects at its first use, so what raises here
        is only an address that cannot be parsed: `ConnectError`."""
        self._check()
        Address.parse(address)
        return Connection(self._plain, self._new_record(address))

    def _new_record(
        self,
        address: str | None = None,
        rank: int = -1,
        name: str = "",
        resolve: Callable[[], str] | None = None,
    ) -> Record:
        """The record of a lazy connection. For another rank of a job `rank` and `name` are known,
        and `resolve` returns its address at the first use."""
        self._check()
        return Record(*self._engine.create_connection(rank), address, rank, name, resolve)

    def _adopt(self) -> Record:
        """The record of a connection that a peer has begun, perhaps while the session closes.
        Called on the control thread."""
        record = Record(*self._engine.create_connection(-1))
        self._hot.hold(Connection(self._plain, record))
        return record

    def _context(
        self, number: int, size: int, find_links: Callable[[Any], Links | None]
    ) -> Context:
        """A context of this session; see `Context`."""
        return Context(self._hot, self._control, number, size, find_links)

    def _event(self, kind: type[R]) -> R:
        """A request of this type that ends when `_complete` or `_fail` is called."""
        self._check()
        return self._hot.event(kind)

    # ---- messages that name no connection ----

    def on_message(self, id: int, handler: Callable[..., object] | None) -> None:
        """Call handler(connection, header, payload) for each `am_send(id, ...)` that arrives, in
        whichever thread uses the session; None removes it."""
        self._check()
        self._hot.on_message(id, handler)

    def register(self, buf: Any) -> MemoryRegion:
        """Let peers put into, or get from, this buffer; `.rkey` are the bytes to send them.

        The buffer is C-contiguous and writable (`BufferError`), and stays exported until the
        region, or the session, is closed.
        """
        self._check()
        self._control.prepare_memory()
        region = MemoryRegion(self._hot, buf, self._regions.discard)
        self._regions.add(region)
        return region

    # ---- memory ----

    def pin(self, buf: Any) -> Pin:
        """Let the transports know memory that the program has already, so that messages from it
        and into it need no registration of their own, as those of `empty` do not.

        The buffer is C-contiguous and writable (`BufferError`), and stays exported until the
        `Pin`, or the session, is closed; no message of it may be under way then.
        """
        self._check()
        pin = Pin(self._hot, buf, self._regions.discard)
        self._regions.add(pin)
        return pin

    def allocate(self, nbytes: int) -> memoryview:
        """A block of the session's pool, of whole pages that every transport knows beforehand.

        It goes back to the pool when nothing refers to it. A pool that has no room for it
        (PSP_POOL_MAX) gives ordinary memory, and counts that in `stats`.
        """
        self._check()
        return memoryview(self._hot.allocate(nbytes))

    def empty(
        self, shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float
    ) -> NDArray[Any]:
        """A numpy array of the session's pool: `numpy.empty` for arrays that are sent often, or
        lent (`isend(array, lend=True)`)."""
        self._check()
        array: NDArray[Any] = self._hot.empty(shape, dtype)
        return array

    # ---- actions ----

    def serve(self, timeout: float | None = None) -> None:
        """Run the actions that peers ask for (see `pscompy.action`), for `timeout` seconds or until
        the session is closed, which raises `Closed`.

        A session that has called an action itself runs those of others from then on anyway.
        """
        self._check()
        self._plain.service().start()
        try:
            self._event(Request).wait(timeout)
        except Timeout:
            return

    # ---- other event loops ----

    def fileno(self) -> int:
        """A descriptor that becomes readable when `progress` would find something, provided that
        `arm` returned True before."""
        self._check()
        return self._own_sleeper().fileno()

    def arm(self) -> bool:
        """True: sleep on `fileno()`. False: there is something already, or something has happened
        since you looked: call `progress`, look at your requests, and arm again. For one thread."""
        sleeper = self._own_sleeper()
        return not self._hot.pending and sleeper.arm() and not self._hot.pending

    def _own_sleeper(self) -> Sleeper:
        self._check()
        with self._lock:
            if self._sleeper is None:
                self._sleeper = self._hot.sleeper()
            return self._sleeper

    def progress(self) -> int:
        """Move everything on once, without waiting; how many events there were."""
        self._check()
        return self._hot.progress()

    # ---- the end ----

    def close(self) -> None:
        """Close all connections in order, sockets, and everything else. Idempotent.

        Waits PSP_SHUTDOWN_TIMEOUT seconds for peers that are silent. Calls that wait in other
        threads end with `Closed`.
        """
        self._shut(self._config["SHUTDOWN_TIMEOUT"])

    def _shut(self, timeout: float) -> None:
        with self._lock:
            first, self._closing = not self._closing, True
        if self._forked:
            return
        if not first:
            self._closed.wait()
            return
        try:
            self._close_all(timeout)
        finally:
            _open_sessions.pop(self, None)
            self._closed.set()

    def _close_all(self, timeout: float) -> None:
        ended = False
        for sock in list(self._sockets):
            sock.close()
        try:
            self._control.close(timeout)
        finally:
            ended = self._control.stop()
            if self._config["DEBUG_STATS"]:
                logs.notice("%s: %s", self.name, _figures(self._engine.counters()))
            regions = list(self._regions)
            for region in regions:
                region._forget()
            reached = self._hot.close(self._engine.destroy if ended else self._engine.abandon)
            for region in regions:
                region._keep() if reached else region.close()
            self._sleeper = None

    def _stop_listening(self, sock: Socket) -> None:
        self._sockets.discard(sock)
        if not self._forked and not self._closed.is_set():
            self._control.stop_listening(sock._listener)

    def _check(self) -> None:
        if self._forked:
            raise Closed(_inherited)
        if self._closing:
            raise Closed("the session is closed")

    def _after_fork(self) -> None:
        """In the child: nothing of it works any more, and nothing of the parent's is touched."""
        self._forked = True
        self._lock = threading.Lock()
        self._hot.forked()
        self._control.forked()
        self._engine.forked()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(self, *raised: object) -> None:
        """As `close`, while the loop goes on."""
        import asyncio  # here: 20 ms that a program without it does not pay

        await asyncio.to_thread(self.__exit__, *raised)

    def __repr__(self) -> str:
        state = " inherited" if self._forked else " closed" if self._closing else ""
        return f"<{type(self).__name__} {self.name}{state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} stays in its process: send a Socket's address instead, and"
            " open a Session there"
        )


def _figures(counters: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in counters.items() if value) or "nothing"


def _close_at_exit() -> None:
    for session in reversed(list(_open_sessions)):
        try:
            session.close()
        except PscomError:
            logs.logger.exception("%r did not close", session)


def _after_fork_in_child() -> None:
    for session in list(_open_sessions):
        session._after_fork()
    _open_sessions.clear()


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
