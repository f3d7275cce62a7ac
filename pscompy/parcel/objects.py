"""Objects over connections: each is a head, which is matched, followed by its long chunks.

Heads are sent in a context of their own, so that objects match only receives of objects. Chunks
that do not fit into the head and are too long for eager messages are offered in the head, all
together: the receiver fetches them into memory of its pool. Shorter chunks, a single long chunk,
lent chunks, and chunks of a connection that is not up yet are messages of a second context; the
head contains the tag of these messages. The receiver maps chunks that are lent.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, NoReturn

from pscompy.api.c import _binding
from pscompy.api.request import Request, wait_all
from pscompy.errors import ProtocolError, PscomError, Timeout, Unsupported
from pscompy.parcel import archive, array_codec
from pscompy.parcel.object_requests import Receiving, Sending, head_of
from pscompy.parcel.pickling import Pickle, Pickling, whole_pickle

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from pscompy.api.request import Status
    from pscompy.parcel.archive import Archive, Head

TAGS = 0x7FFFFFFF
OBJECT, CALL, ANSWER = range(3)
KINDS = 4
# maximum length of a head, in bytes, while the eager limit of the connection is not known
_EAGER = 16 << 10


class Objects:
    """Sends and receives objects over one connection.

    `heads` and `chunks` are that connection in two contexts. `eager_max` returns the number of
    bytes that the connection sends eagerly at most, or None if that is not known yet. `kind`
    (OBJECT, CALL or ANSWER) keeps the chunk tags of several Objects of one connection apart.
    """

    __slots__ = (
        "_apart",
        "_eager_max",
        "_idents",
        "_kept",
        "_serialiser",
        "_zero_copy",
        "chunks",
        "heads",
    )

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
        # guess whether the next object has buffers outside of its pickle, by the last object
        self._apart = not self.pickles
        self._eager_max = eager_max
        self._idents = itertools.count(kind, KINDS)
        # requests for chunks that were offered, by ident; see keep()
        self._kept: dict[int, Request] = {}

    # ---- sending ----

    @property
    def pickles(self) -> bool:
        """Whether an object without chunks is written and read by the pickle module alone."""
        return type(self._serialiser) is Pickle

    @property
    def names_functions(self) -> bool:
        """Whether the serialiser writes a function as its name only."""
        return type(getattr(self._serialiser, "inner", self._serialiser)) is Pickle

    def send(self, obj: object, tag: int, timeout: float | None, lend: bool) -> bool:
        """Send an object: the part of `Connection.send_obj` that is in Python. `timeout` is in
        seconds. Returns whether the object contained arrays or had chunks besides its pickle."""
        packed = archive.dump(obj, self._serialiser, self._zero_copy)
        if isinstance(packed, bytes):
            self.heads.send(packed, tag, timeout)
            return array_codec.reduced(packed)
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
        """Send an object whose pickle `index` has left out the buffers `left`."""
        packed = archive.gather(index, left, self._serialiser, self._zero_copy)
        self._send_archive(packed, tag, timeout, lend)

    def _send_archive(self, packed: Archive, tag: int, timeout: float | None, lend: bool) -> None:
        requests = self._post(packed, tag, lend)
        if timeout is None:
            wait_all(requests)
        else:
            wait_or_cancel(self._sending(requests), timeout)

    def isend(self, obj: object, tag: int, lend: bool) -> Request[None]:
        """Implement `Connection.isend_obj`."""
        packed = self.take_apart(obj)
        if not isinstance(packed, bytes) and not lend:
            packed.chunks = [self._own(chunk) for chunk in packed.chunks]
        return self.begin(packed, tag, lend)

    def take_apart(self, obj: object) -> bytes | Archive:
        """Serialise an object: its pickle, or an Archive if it has chunks.

        Raises the exceptions of the serialiser.
        """
        if not self._apart and (made := whole_pickle(obj)):
            return made
        packed = archive.dump(obj, self._serialiser, self._zero_copy)
        whole = isinstance(packed, bytes) and not array_codec.reduced(packed)
        self._apart = not (whole and self.pickles)
        return packed

    def begin(self, packed: bytes | Archive, tag: int, lend: bool = False) -> Request[None]:
        """Send the result of `take_apart`. The object must not change before the request ends."""
        if isinstance(packed, bytes):
            return self.heads.isend(packed, tag)
        return self._sending(self._post(packed, tag, lend))

    def serialise(self, obj: object) -> bytes:
        """Serialise an object into one piece, without chunks."""
        return self._serialiser.dumps(obj, lambda buffer: True)

    def _post(self, packed: Archive, tag: int, lend: bool) -> list[Request[None]]:
        """Post the sends of an archive's head and of the chunks outside of the head, in this
        order."""
        ident = next(self._idents) & TAGS
        eager = self._eager_max() or _EAGER
        offers: list[Request[None]] = []
        try:
            offer = partial(self._offer, offers, lend)
            head, rest = packed.pack(ident, 0 if lend else eager, offer, eager)
            requests = [self.heads.isend(head, tag)]
        except BaseException:
            for offered in offers:
                offered.cancel()
            raise
        requests += [self.chunks.isend(_owner(it) if lend else it, ident, lend) for it in rest]
        return requests + offers

    def _offer(self, offers: list[Request[None]], lend: bool, chunks: list[Any]) -> bytes:
        """Offer several chunks together for the receiver to fetch, and add the request to `offers`.
        Returns the offer, or empty bytes if the chunks cannot be offered."""
        if lend or not 2 <= len(chunks) <= _binding.OFFER_MAX:
            return b""
        try:
            request, offer = self.chunks._offer(chunks)
        except Unsupported:
            return b""
        offers.append(request)
        return offer

    def _own(self, chunk: Any) -> Any:
        """Return memory that the program cannot change during the send: `chunk` or a copy."""
        if archive.readonly(chunk) and _constant(chunk):
            return chunk
        copy = memoryview(self.heads._worker.allocate(chunk.nbytes, private=True))
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
        """Receive an object within a time limit: the part of `Connection.recv_obj` that is in
        Python."""
        return wait_or_cancel(self.irecv(tag), timeout)

    def finish(self, data: bytearray) -> Any:
        """Return the object whose first message, a head or a whole pickle, is `data`; receives its
        chunks."""
        head = head_of(data)
        return self.load(data, head, self._fetched(head) if head else ())

    def refuse(self, error: BaseException) -> NoReturn:
        """Raise a `ParcelError` with `error` as its cause, or `error` itself if it is no
        `Exception`, as for example KeyboardInterrupt."""
        if not isinstance(error, Exception):
            raise error
        raise archive.refusal(error) from error

    def irecv(self, tag: int) -> Request:
        """Implement `Connection.irecv_obj`."""
        return receive(self.heads._worker, self.heads, self.heads.irecv(None, tag), lambda _: self)

    def fetch(self, head: Head) -> list[Request]:
        """Post receives for the chunks outside of the head. All offered chunks have one request,
        which is the last."""
        offered = head.offered
        fetching = [self._fetch_offered(head, offered)] if head.offer else []
        sent = len(head.outside) - len(offered)
        return [self.chunks._irecv_memory(head.ident) for _ in range(sent)] + fetching

    def _fetch_offered(self, head: Head, offered: list[int]) -> Request:
        kept = self._kept.pop(head.ident, None)
        if kept is not None:
            return kept
        if not 0 < len(offered) <= _binding.OFFER_MAX:
            raise ProtocolError(f"an archive offers {len(offered)} chunks")
        allocate = partial(self.heads._worker.allocate, private=True)
        try:
            return self.chunks._fetch(head.offer, [allocate(nbytes) for nbytes in offered])
        except MemoryError:
            with suppress(PscomError):
                # refuses the offer, so that the sender's request ends
                self.chunks._fetch(head.offer, [])
            raise

    def keep(self, ident: int, fetching: Request) -> None:
        """Keep the request for offered chunks until their head is received again, because the
        chunks can be fetched only once."""
        self._kept[ident] = fetching

    def _fetched(self, head: Head) -> Sequence[Any]:
        """Receive the chunks outside of the head. If the wait is interrupted, a receive stays
        posted for each of these chunks, because the sender waits until they are fetched."""
        if len(head.entries) > 1 or head.offer or not head.outside:
            requests = self.fetch(head)
            try:
                return wait_all(requests)
            except BaseException:
                for request in requests:
                    stay_posted(request)
                raise
        try:
            return (self.chunks._recv_memory(head.ident),)
        except BaseException:
            with suppress(PscomError):
                stay_posted(self.chunks._irecv_memory(head.ident))
            raise

    def load(self, data: Buffer, head: Head | None, chunks: Sequence[Any]) -> Any:
        """Restore the object whose pickle, or head and chunks, has arrived. `chunks` are the
        results of the requests that `fetch` returned."""
        if head is None:
            return self.restore(data)
        if head.offer:
            *sent, fetched = chunks
            chunks = head.in_order(sent, fetched)
        return archive.load(head, chunks, self._serialiser)

    def restore(self, data: Buffer) -> Any:
        """Restore an object from the result of `serialise`. Raises `ParcelError`."""
        return archive.restore(data, (), self._serialiser)


def receive(
    worker: _binding.Worker, origin: object, head: Request, source: Callable[[Request], Objects]
) -> Request:
    """Return a request for the object whose first message the request `head` receives.

    `source(head)` returns the Objects of the sender.
    """
    made = worker.event(Receiving, origin, head)
    made.begin(head, source)
    return made


def stay_posted(request: Request) -> None:
    """Keep a receive posted although nobody holds it; its message is dropped."""
    request._on_done(Request.done)


def wait_or_cancel(request: Request, timeout: float) -> Any:
    """Wait up to `timeout` seconds for a request, and cancel it if it does not complete.

    Raises `Timeout`, whose attribute `request` is None if `request` could be cancelled.
    """
    try:
        return request.wait(timeout)
    except Timeout as error:
        if request.cancel():
            error.request = None
        raise


def _owner(chunk: Any) -> Any:
    """Return the array that `chunk` covers entirely, so that the array is made read-only while it
    is lent, or `chunk` itself if there is no such array."""
    owner = chunk.obj if type(chunk) is memoryview else chunk
    return owner if getattr(owner, "nbytes", -1) == chunk.nbytes else chunk


def _constant(chunk: Any) -> bool:
    """Return whether the memory of a read-only chunk belongs to bytes, or to an array that is
    read-only, too. Writable views that were made of the array before are not seen."""
    ndarray: Any = getattr(sys.modules.get("numpy"), "ndarray", memoryview)
    owner: Any = chunk
    while isinstance(owner, memoryview) or (isinstance(owner, ndarray) and not owner.flags.owndata):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    return isinstance(owner, bytes) or (isinstance(owner, ndarray) and not owner.flags.writeable)


# ---- receives from any rank ---------------------------------------------------


def anybody(worker: _binding.Worker, size: int, context: int) -> _binding.Communicator:
    """Return a communicator that receives from all peers in `context`: from `size` ranks, or from
    all connections if `size` is 0."""
    made = _binding.Communicator()
    made._bind(worker, size, context)
    return made


class AnyObjects(_binding.Communicator):
    """Receives objects from any rank of a communicator; `of(rank)` is the Objects of one rank.
    `make_error` is the communicator's `_exception`."""

    def __init__(
        self,
        worker: _binding.Worker,
        size: int,
        context: int,
        of: Callable[[int], Objects],
        make_error: Callable[[int, int], BaseException],
    ) -> None:
        self._worker = worker
        self._of = of
        self._make_error = make_error
        self._bind(worker, size, context)

    def _peer(self, rank: int) -> _binding.Connection:
        return self._of(rank).heads

    def _exception(self, status: int, nbytes: int, /) -> BaseException:
        return self._make_error(status, nbytes)

    def take(self, tag: int, timeout: float | None) -> Any:
        """Receive the next object with this tag. `timeout` is in seconds; raises `Timeout`."""
        if timeout is not None:
            return wait_or_cancel(self.itake(tag), timeout)
        data, status = self.recv_status(tag=tag)
        return self._from(status).finish(data)

    def itake(self, tag: int) -> Request:
        """Like `take`, but returns a request at once."""
        return receive(self._worker, self, self.irecv(tag=tag), self._sender)

    def _sender(self, head: Request) -> Objects:
        assert head.status is not None
        return self._from(head.status)

    def _from(self, status: Status) -> Objects:
        assert isinstance(status.source, int)
        return self._of(status.source)
