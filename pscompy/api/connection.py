"""Connection: one peer, to send to and receive from.

The calls for messages are those of the extension (`_binding.Connection`); the calls here are made
rarely.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from pscompy.api import arrays
from pscompy.api.c import _binding
from pscompy.api.c.guard import guard
from pscompy.api.context import Context
from pscompy.api.request import Request, Status
from pscompy.control.phases import Phase
from pscompy.core import lib
from pscompy.errors import Closed, PscomError, from_status
from pscompy.parcel import door

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from pscompy.control.explain import Explanation
    from pscompy.control.peer import Record
    from pscompy.parcel.door import ActionPeer, Caller, Future, Objects


__all__ = ["Connection", "ConnectionState"]


class ConnectionState(Enum):
    """The states of a connection."""

    LAZY = lib.PSC_CONN_LAZY  # not connected yet; the first use connects
    CONNECTING = lib.PSC_CONN_CONNECTING  # messages that are sent are queued
    UP = lib.PSC_CONN_UP
    CLOSING = lib.PSC_CONN_CLOSING  # close() was called; queued messages are still sent
    CLOSED = lib.PSC_CONN_CLOSED  # closed by either side
    FAILED = lib.PSC_CONN_FAILED  # the peer was lost


_UNSETTLED = (Phase.LAZY, Phase.NEGOTIATING)
_ENDED = (ConnectionState.CLOSED, ConnectionState.FAILED)


class Connection(_binding.Connection):
    """Messages with one peer. Made by `Session.connect`, `Socket.accept` and
    `Communicator.connection`.

    A connection connects at its first use, in the background. A context manager: leaving it closes
    the connection.
    """

    __slots__ = ("__weakref__", "_actions", "_context", "_record")

    def __init__(self, context: Context, record: Record, number: int | None = None) -> None:
        """`number` is the context number of the messages; None means the number of `context`."""
        self._context = context
        self._record = record
        # the ActionPeer that carries calls of actions; made at the first call
        self._actions: ActionPeer | None = None
        number = context.number if number is None else number
        self._bind(context.worker, record.conn.address, number, record.conn.handle)

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        return ConnectionState(self._state)

    @property
    def transport(self) -> str:
        """The name of the transport of the messages, for example "shm"; several names are joined by
        "+"; empty until the connection is established."""
        return self._settled().report.choice

    @property
    def peer(self) -> str:
        """The peer's name, or its address until the name is known."""
        return self._settled().label

    @property
    def stats(self) -> dict[str, int]:
        """Counters of this connection, by name; empty once the session is closed.

        While the connection is up, the counters of its transport are included; their names begin
        with the transport's name.
        """
        if not self._worker.address:
            return {}
        return self._record.conn.counters()

    def explain(self) -> Explanation:
        """Explain why this connection uses its transport: candidates, choice, reasons, thresholds,
        and the variables that would change the choice."""
        return self._context.control.explain(self._settled())

    def open(self, timeout: float | None = None) -> None:
        """Connect now, and wait until the connection is up, at most `timeout` seconds.

        `ConnectError` if no transport works; the error names the reason for each. After a `Timeout`
        the connection goes on connecting.
        """
        self.iopen().wait(timeout)

    def iopen(self) -> Request[None]:
        """Connect now, and return a request that is done when the connection is up."""
        request = self._worker.event(None, self)
        if self.state is ConnectionState.UP:
            request._complete(None)
            return request
        if self.state is ConnectionState.CLOSING:
            raise Closed(f"{self}: closed", peer=self.peer)

        def ended(error: PscomError | None) -> None:
            if error is None:
                request._complete(None)
            else:
                request._fail(copy.copy(error))

        self._context.control.open(self._record, self, ended)
        return request

    def close(self) -> None:
        """Close the connection: nothing more can be sent, and what was sent still arrives. Returns
        at once."""
        if self.state not in _ENDED:
            self._context.control.close_connection(self._record)

    # ---- arrays ----

    def recv_array(
        self,
        dtype: DTypeLike,
        shape: SupportsIndex | Sequence[SupportsIndex],
        tag: int = -1,
        timeout: float | None = None,
    ) -> NDArray[Any]:
        """Receive one message as a new array of this dtype and shape, in memory of the pool.

        `ValueError` if the message has another number of bytes; the message then stays in the
        queue. `Timeout` if there is no message within `timeout` seconds.
        """
        return arrays.receive(self._worker, partial(self.mprobe, tag, timeout), dtype, shape)

    # ---- objects ----

    def isend_obj(self, obj: object, tag: int = 0, lend: bool = False) -> Request[None]:
        """Like send_obj, but returns a Request at once. The object may be changed then, because its
        long buffers have been copied, except those of `bytes` and of arrays that own their memory
        and are read-only. With `lend` they are not copied, and the object
        must not be changed until the request is done."""
        return self._own_objects().isend(obj, tag, lend)

    def irecv_obj(self, tag: int = -1) -> Request[Any]:
        """Like recv_obj, but returns a Request at once, whose result is the object."""
        return self._own_objects().irecv(tag)

    def probe_obj(self, tag: int = -1, timeout: float | None = None) -> Status:
        """Wait for an object and return its Status, without receiving it. `nbytes` is its length
        without its long buffers."""
        return self._as_mine(self._own_objects().heads.probe(tag, timeout))

    def _own_objects(self) -> Objects:
        objects: Objects = self._objects or self._open_objects()
        return objects

    def _open_objects(self) -> Objects:
        """Set the Objects of this connection, unless another thread has set them meanwhile: two
        Objects would give the same tags to the chunks of different objects."""
        made = self._make_objects(lib.PSC_CONTEXT_OBJECTS)
        with guard:
            if self._objects is None:
                self._set_objects(made, made.heads, made.pickles)
        objects: Objects = self._objects
        return objects

    def _make_objects(self, context: int, kind: int | None = None) -> Objects:
        record = self._record
        return door.make_objects(
            self._in_context(context),
            self._in_context(lib.PSC_CONTEXT_CHUNKS),
            self._context.control.config,
            lambda: record.report.eager_max,
            kind,
        )

    def _in_context(self, offset: int) -> Connection:
        """Return the same connection for messages of the context whose number is higher by
        `offset`."""
        return _OtherContext(self, self._context.number + offset)

    def _as_mine(self, status: Status) -> Status:
        """Return the status of a message of `_in_context`, with this connection as its source."""
        return status if isinstance(status.source, int) else status._replace(source=self)

    # ---- actions ----

    def submit(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Future:
        """Have the peer call an action (see `pscompy.action`) with these arguments.

        Arguments are sent as objects are. Long buffers are not copied first: they must not be
        changed until `on_sent` of `with_options` is called, or the future is done.
        """
        return self.with_options().submit(function, *args, **kwargs)

    def call(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Any:
        """Call `submit`, and wait for the result."""
        return self._context.service().call(self._action_peer(), function, args, kwargs)

    def with_options(
        self, *, timeout: float | None = None, on_sent: Callable[[], object] | None = None
    ) -> Caller:
        """Return `submit` and `call` of this connection with options: their futures fail with
        `Timeout` after `timeout` seconds, and `on_sent()` is called as soon as the arguments may be
        changed."""
        return door.make_caller(self._context.service(), self._action_peer(), timeout, on_sent)

    def _action_peer(self) -> ActionPeer:
        if self._actions is None:
            source = self._record.rank if self._record.rank >= 0 else self
            made = door.make_action_peer(source, self._make_objects)
            with guard:
                # another thread may have made the ActionPeer meanwhile
                self._actions = self._actions or made
        return self._actions

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        over = f" over {self.transport}" if self.transport else ""
        return f"<Connection to {self.peer}{over}, {self.state.name.lower()}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Connection stays in its process: send the address of a listening Socket instead,"
            " and connect() to it there"
        )

    def _settled(self) -> Record:
        """Return the record, after the control thread has brought it up to date: the core connects
        ranks within a node by itself, which the control thread notices later."""
        if self._record.phase in _UNSETTLED and self.state is ConnectionState.UP:
            self._context.control.catch_up()
        return self._record

    def _begin_open(self) -> None:
        self._context.control.begin_open(self._record, self)

    def _exception(self, status: int, nbytes: int) -> BaseException:
        """Return the exception for a status of the core, with the reason that the control plane
        knows."""
        if status == lib.PSC_ERR_NO_RESOURCE:  # connecting failed before the core had the operation
            status = lib.PSC_ERR_CONNECT
        sized = (lib.PSC_ERR_TRUNCATED, lib.PSC_ERR_NO_MEMORY)
        details = {"nbytes": nbytes} if status in sized else {}
        if status == lib.PSC_ERR_CLOSED and self._context.closed:
            return Closed(f"{self!r}: its communicator was closed", peer=self.peer)
        broken = status in (lib.PSC_ERR_PEER_LOST, lib.PSC_ERR_TRANSPORT)
        reason = self._record.conn.reason if broken else ""
        what = f"{self!r}: {reason}" if reason else repr(self)
        made = from_status(status, what, peer=self.peer, **details)
        known = None if reason else self._record.error
        return copy.copy(known) if isinstance(known, type(made)) else made


class _OtherContext(Connection):
    """A connection's messages in another context. The original connection is kept alive while it
    connects."""

    __slots__ = ("_original",)

    def __init__(self, original: Connection, number: int) -> None:
        super().__init__(original._context, original._record, number)
        self._original = weakref.ref(original)

    def _begin_open(self) -> None:
        self._context.control.begin_open(self._record, self._original() or self)
