"""Requests for whole objects. Each ends when the requests for the object's head (its first message)
and for its chunks (long buffers) have ended."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pscompy.api.c.guard import guard
from pscompy.api.request import Request
from pscompy.parcel import archive

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from pscompy.api.request import Status
    from pscompy.parcel.archive import Head


class Source(Protocol):
    """The methods of Objects that a receive calls."""

    def fetch(self, head: Head) -> list[Request]: ...

    def keep(self, ident: int, fetching: Request) -> None: ...

    def load(self, data: Buffer, head: Head | None, chunks: Sequence[Any]) -> Any: ...


def head_of(data: bytearray) -> Head | None:
    """Parse the head at the start of `data`. Returns None if `data` is a whole pickle."""
    return None if data[:1] == archive.PICKLE_BYTE else archive.parse(data)


def when_all_ended(requests: Sequence[Request], then: Callable[[], object]) -> None:
    """Call then() once, when the last request has ended, with success or not."""
    ends = itertools.count(1)

    def one_ended(_: Request) -> None:
        if next(ends) == len(requests):
            then()

    for request in requests:
        request._on_done(one_ended)


def results(requests: Sequence[Request]) -> list[Any]:
    """Return the results of requests that have ended, or raise the exception of the first that has
    failed; the others' messages are dropped then."""
    for request in requests:
        request.done()  # a receive of which nobody knows would give its message back
    return [request.result() for request in requests]


class Sending(Request[None]):
    """Completes when the head and all chunks have been sent."""

    def begin(self, requests: list[Request[None]]) -> None:
        self._requests = requests
        left = [request for request in requests if not request._finished]
        # usually only one request is left, because the head has been sent already
        if len(left) == 1:
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
        """Withdraw the object. Returns False if the head has been sent already."""
        if self._finished or not self._requests[0].cancel():
            return False
        for request in self._requests[1:]:
            request.cancel()
        return True

    def _requeue(self, anyway: bool = False) -> bool:
        self.cancel()
        return False


class Receiving(Request):
    """Receives the head of an object, then the chunks that are not in the head, and completes with
    the object."""

    def begin(self, head: Request, source: Callable[[Request], Source]) -> None:
        self._head = head
        self._source = source
        self._chunks: list[Request] = []
        # keeps the request for offered chunks; see Objects.keep
        self._keep: Callable[[], object] | None = None
        self._unwanted = False
        self._fetching = False  # whether `_on_head` asks for the chunks at the moment
        # A weak reference, so that neither the head nor the chunks keep a receive that the program
        # has dropped: its finalizer calls _requeue().
        head._on_done(partial(_on_head, weakref.ref(self)))

    @property
    def status(self) -> Status | None:
        """The Status of the head; `nbytes` is the length of the head."""
        return self._head.status

    def _on_head(self, request: Request) -> None:
        with guard:  # excludes _requeue() in another thread
            self._fetching = not self._unwanted
        if not self._fetching:
            request._requeue()
            return
        try:
            data = request.result()
            objects = self._source(request)
            head = head_of(data)
            # without `guard`, because the chunks' memory is allocated and perhaps registered
            chunks = self._chunks = objects.fetch(head) if head else []
            if head and head.offer:
                self._keep = partial(objects.keep, head.ident, chunks[-1])
        except BaseException as error:
            if self._end_fetching():
                self._fail(error)
            return
        if not self._end_fetching():
            return

        load = partial(_load, weakref.ref(self), objects, data, head)
        if chunks:
            when_all_ended(chunks, load)
        else:
            load()

    def _end_fetching(self) -> bool:
        """Return whether the object is still wanted; otherwise the messages are put back."""
        with guard:
            self._fetching = False
            unwanted = self._unwanted
        if unwanted:
            self._return_messages()
        return not unwanted

    def cancel(self) -> bool:
        """Withdraw the receive. Returns False if the head has arrived already."""
        return not self._finished and self._head.cancel()

    def _requeue(self, anyway: bool = False) -> bool:
        """Put the messages of the head and the chunks back for other receives. All these messages
        are in memory of the library, so there is no need to wait for those that are still in
        flight."""
        if not self._revoke():
            return False
        with guard:
            self._unwanted = True
            fetching = self._fetching
        if not fetching:  # otherwise _end_fetching() does the rest
            self._return_messages()
        return False

    def _return_messages(self) -> None:
        if self._keep is not None:
            self._keep()
        for part in (*self._chunks, self._head):
            part._requeue(True)


def _on_head(receiving: weakref.ref[Receiving], head: Request) -> None:
    it = receiving()
    if it is None:
        head._requeue()
    else:
        it._on_head(head)


def _load(
    receiving: weakref.ref[Receiving], objects: Source, data: bytearray, head: Head | None
) -> None:
    it = receiving()
    if it is None:
        return
    try:
        it._complete(objects.load(data, head, results(it._chunks)))
    except BaseException as error:
        it._fail(error)
