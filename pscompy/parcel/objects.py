"""Objects over connections: a head for each, which is matched, and its long chunks behind it.

Heads have a context of their own, so that objects match only receives of objects, and chunks
another one: the head of an object says which tag its chunks have there. Chunks that do not fit
into the head go by rendezvous, once the receiver has memory of its pool for them; those that are
lent, it maps.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, NoReturn

from pscompy.api.request import Request, wait_all
from pscompy.binding import _binding
from pscompy.errors import PscomError, Timeout
from pscompy.parcel import archive
from pscompy.parcel.pickling import Pickle, Pickling

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from pscompy.api.request import Status
    from pscompy.parcel.archive import Archive, Head

TAGS = 0x7FFFFFFF
OBJECT, CALL, ANSWER = range(3)
KINDS = 4
_EAGER = 16 << 10  # room in a head while the connection's own limit is not known


class Objects:
    """The objects of one connection.

    `heads` and `chunks` are that connection in the two contexts; `eager_max` gives the longest
    message that it sends eagerly, None: not known yet. `kind` keeps chunks of several apart.
    """

    __slots__ = ("_eager_max", "_idents", "_serialiser", "_zero_copy", "chunks", "heads")

    def __init__(
        self,
        heads: _binding.Connection,
        chunks: _binding.Connection,
        pickling: Pickling,
        eager_max: Callable[[], int | None],
        kind: int = 0,
    ) -> None:
        self.heads = heads
        self.chunks = chunks
        self._serialiser = pickling.serialiser
        self._zero_copy = pickling.zero_copy
        self._eager_max = eager_max
        self._idents = itertools.count(kind, KINDS)

    # ---- sending ----

    @property
    def pickles(self) -> bool:
        """Whether plain pickle writes and reads what is no more than its pickle."""
        return type(self._serialiser) is Pickle

    def send(self, obj: object, tag: int, timeout: float | None, lend: bool) -> bool:
        """What `Connection.send_obj` leaves to us; whether the object was more than its pickle."""
        packed = archive.dump(obj, self._serialiser, self._zero_copy)
        if isinstance(packed, bytes):
            self.heads.send(packed, tag, timeout)
            return False
        self._send_archive(packed, tag, timeout, lend)
        return True

    def send_rest(
        self,
        index: bytes,
        left: list[PickleBuffer],
        tag: int,
        timeout: float | None,
        lend: bool,
    ) -> None:
        """An object whose pickle has left out some buffers."""
        packed = archive.gather(index, left, self._serialiser, self._zero_copy)
        self._send_archive(packed, tag, timeout, lend)

    def _send_archive(self, packed: Archive, tag: int, timeout: float | None, lend: bool) -> None:
        requests = self._post(packed, tag, lend)
        if timeout is None:
            wait_all(requests)
        else:
            wait_or_cancel(self._sending(requests), timeout)

    def isend(self, obj: object, tag: int, lend: bool) -> Request[None]:
        """See `Connection.isend_obj`."""
        packed = self.take_apart(obj)
        if not isinstance(packed, bytes) and not lend:
            packed.chunks = [self._own(chunk) for chunk in packed.chunks]
        return self.begin(packed, tag, lend)

    def take_apart(self, obj: object) -> bytes | Archive:
        """Raises what pickling it raises."""
        return archive.dump(obj, self._serialiser, self._zero_copy)

    def begin(self, packed: bytes | Archive, tag: int, lend: bool = False) -> Request[None]:
        """Send what was taken apart; until the request has ended the object must stay as it is."""
        if isinstance(packed, bytes):
            return self.heads.isend(packed, tag)
        return self._sending(self._post(packed, tag, lend))

    def serialise(self, obj: object) -> bytes:
        """All of it in one piece."""
        return self._serialiser.dumps(obj, lambda buffer: True)

    def _post(self, packed: Archive, tag: int, lend: bool) -> list[Request[None]]:
        """The head and what follows it, on their way in this order."""
        ident = next(self._idents) & TAGS
        room = 0 if lend else self._eager_max() or _EAGER
        head, rest = packed.pack(ident, room)
        requests = [self.heads.isend(head, tag)]
        requests += [self.chunks.isend(_owner(it) if lend else it, ident, lend) for it in rest]
        return requests

    def _own(self, chunk: Any) -> Any:
        """What the program may not change while it is on its way: its memory, or a copy."""
        if archive.readonly(chunk):
            return chunk
        copy = memoryview(self.heads._worker.allocate(chunk.nbytes))
        copy[:] = PickleBuffer(chunk).raw()
        return copy

    def _sending(self, requests: list[Request[None]]) -> Request[None]:
        if len(requests) == 1:
            return requests[0]
        made = self.heads._worker.event(Sending, self.heads)
        made.begin(requests)
        return made

    # ---- receiving ----

    def recv(self, tag: int, timeout: float) -> Any:
        """What `Connection.recv_obj` leaves to us: with a time limit."""
        return wait_or_cancel(self.irecv(tag), timeout)

    def finish(self, data: bytearray) -> Any:
        """The object that begins with this head, or is it."""
        head = head_of(data)
        return self.load(data, head, self._fetched(head) if head else ())

    def refuse(self, error: BaseException) -> NoReturn:
        """Unpickling has failed with this; an interrupt stays what it is."""
        if not isinstance(error, Exception):
            raise error
        raise archive.refusal(error) from error

    def irecv(self, tag: int) -> Request:
        """See `Connection.irecv_obj`."""
        return receive(self.heads._worker, self.heads, self.heads.irecv(None, tag), lambda _: self)

    def fetch(self, head: Head) -> list[Request[Buffer]]:
        """Begin to receive the chunks that come by themselves."""
        return [self.chunks._irecv_memory(head.ident) for _ in head.outside]

    def _fetched(self, head: Head) -> Sequence[Buffer]:
        """The chunks that come by themselves. A wait that is interrupted leaves none of them
        behind: their sender waits as well."""
        if len(head.entries) > 1 or not head.outside:
            return wait_all(self.fetch(head))
        try:
            return (self.chunks._recv_memory(head.ident),)
        except BaseException:
            with suppress(PscomError):
                self.chunks._irecv_memory(head.ident)
            raise

    def load(self, data: Buffer, head: Head | None, chunks: Sequence[Buffer]) -> Any:
        """The object whose pickle, or head and chunks, has arrived."""
        if head is None:
            return self.restore(data)
        return archive.load(head, chunks, self._serialiser)

    def restore(self, data: Buffer) -> Any:
        """An object out of what `serialise` made of it."""
        return archive.restore(data, (), self._serialiser)


def head_of(data: bytearray) -> Head | None:
    """What an object begins with; None: it is all of it."""
    return None if data[:1] == archive.PICKLE_BYTE else archive.parse(data)


def receive(
    worker: _binding.Worker, origin: object, head: Request, source: Callable[[Request], Objects]
) -> Request:
    """A request whose result is the object that begins with what `head` receives; `source` tells
    whose it is."""
    made = worker.event(Receiving, origin)
    made.begin(head, source)
    return made


def wait_or_cancel(request: Request, timeout: float) -> Any:
    """As `request.wait`; after a `Timeout` that names no request, nothing has happened."""
    try:
        return request.wait(timeout)
    except Timeout as error:
        if request.cancel():
            error.request = None
        raise


def _owner(chunk: Any) -> Any:
    """The array whose memory it is, as a whole: it is read-only while it is lent."""
    owner = chunk.obj if type(chunk) is memoryview else chunk
    return owner if getattr(owner, "nbytes", -1) == chunk.nbytes else chunk


# ---- requests over requests ---------------------------------------------------


def when_all_ended(requests: Sequence[Request], then: Callable[[], object]) -> None:
    """Call then() once, when the last of them has ended, however it has."""
    lock = threading.Lock()
    left = len(requests)

    def one_ended(_: Request) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = not left
        if last:
            then()

    for request in requests:
        request._on_done(one_ended)


class Sending(Request[None]):
    """Ends when the head and all chunks have left."""

    def begin(self, requests: list[Request[None]]) -> None:
        self._requests = requests
        left = [request for request in requests if not request._finished]
        if len(left) == 1:  # as a rule: the head has left
            left[0]._on_done(self._all_left)
        elif left:
            when_all_ended(left, self._all_left)
        else:
            self._all_left()

    def _all_left(self, _: Request | None = None) -> None:
        try:
            for request in self._requests:
                request.result()
            self._complete(None)
        except BaseException as error:
            self._fail(error)

    def cancel(self) -> bool:
        """Too late once the head is on its way."""
        if self._finished or not self._requests[0].cancel():
            return False
        for request in self._requests[1:]:
            request.cancel()
        return True

    def _give_back(self, anyway: bool = False) -> bool:
        self.cancel()
        return False


class Receiving(Request):
    """The head, then its chunks, then the object."""

    def begin(self, head: Request, source: Callable[[Request], Objects]) -> None:
        self._head = head
        self._source = source
        self._chunks: list[Request[Buffer]] = []
        self._unwanted = False
        self._lock = threading.RLock()  # between the arrival of the head and giving it back
        # A receive that the program has dropped is not kept by its own head.
        head._on_done(partial(_head_came, weakref.ref(self)))

    @property
    def status(self) -> Status | None:
        """As of any receive; `nbytes` is the length of the head."""
        return self._head.status

    def _head_came(self, request: Request) -> None:
        with self._lock:
            if self._unwanted:
                request._give_back()
                return
            try:
                data = request.result()
                objects = self._source(request)
                head = head_of(data)
                chunks = self._chunks = objects.fetch(head) if head else []
            except BaseException as error:
                self._fail(error)
                return

        def load() -> None:
            try:
                arrived = [chunk.result() for chunk in chunks]
                self._complete(objects.load(data, head, arrived))
            except BaseException as error:
                self._fail(error)

        if chunks:
            when_all_ended(chunks, load)
        else:
            load()

    def cancel(self) -> bool:
        """Too late once the head has come."""
        return not self._finished and self._head.cancel()

    def _give_back(self, anyway: bool = False) -> bool:
        """Head and chunks go back as they came. All are in memory of the library, so nobody waits
        for those that are on their way."""
        if not self._revoke():
            return False
        with self._lock:
            self._unwanted = True
            parts = [*self._chunks, self._head]
        for part in parts:
            part._give_back(True)
        return False


def _head_came(receiving: weakref.ref[Receiving], head: Request) -> None:
    it = receiving()
    if it is None:
        head._give_back()
    else:
        it._head_came(head)


# ---- from anybody -------------------------------------------------------------


def anybody(worker: _binding.Worker, size: int, context: int) -> _binding.Communicator:
    """Receives from all peers in this context: `size` ranks, or connections if it is 0."""
    made = _binding.Communicator()
    made._bind(worker, size, context)
    return made


class AnyObjects(_binding.Communicator):
    """Objects from whichever rank of a communicator; `of` gives those of one rank."""

    def __init__(
        self, worker: _binding.Worker, size: int, context: int, of: Callable[[int], Objects]
    ) -> None:
        self._worker = worker
        self._of = of
        self._bind(worker, size, context)

    def _peer(self, rank: int) -> _binding.Connection:
        return self._of(rank).heads

    def take(self, tag: int, timeout: float | None) -> Any:
        """The next object with this tag."""
        if timeout is not None:
            return wait_or_cancel(self.itake(tag), timeout)
        data, status = self.recv_status(tag=tag)
        return self._from(status).finish(data)

    def itake(self, tag: int) -> Request:
        """A request of it."""
        return receive(self._worker, self, self.irecv(tag=tag), self._sender)

    def _sender(self, head: Request) -> Objects:
        assert head.status is not None
        return self._from(head.status)

    def _from(self, status: Status) -> Objects:
        assert isinstance(status.source, int)
        return self._of(status.source)
