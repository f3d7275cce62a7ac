"""Awaiting requests in asyncio.

An event loop that awaits requests of a session has one `Reader` for that session. The loop sleeps
on the Reader's descriptor (`Worker.sleeper`) together with all its other descriptors. The
descriptor must be armed before each sleep. It becomes readable when progress is possible, and when
another thread has polled, because that disarms it.

An await that is cancelled withdraws its request, unless another await of the request is left. If a
receive with a message is withdrawn, the message goes back to the queue; see `Request._requeue`.
The loop itself, by the callbacks that it has for the descriptor, keeps what is awaited in it. When
it is closed it drops them, and what nobody else holds is garbage: the collector closes the
coroutines, which withdraws their requests.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from pscompy.api.c._binding import Request, Worker
from pscompy.errors import Closed

PASSES = 16  # number of passes of progress before the event loop runs its other callbacks
SETTLE_SECONDS = 1.0  # seconds to wait for the rest of a message that is requeued


class Awaited(set["asyncio.Future[None]"]):
    """The futures of suspended awaits."""


class Reader:
    """Makes progress of one session in one event loop while requests are awaited there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
        self._loop = weakref.ref(loop)  # a weak reference, because the loop keeps its Readers alive
        self._worker = worker
        self._sleeper = worker.sleeper()
        self._thread = threading.get_ident()
        # A weak reference, because the Reader outlives the awaits of a loop that is closed: the
        # loop's callbacks hold it, and the suspended awaits.
        self._awaited: Callable[[], Awaited | None] = lambda: None
        self._collected = False  # whether what a closed loop has left was collected
        # callbacks that were not called yet
        self._callbacks: weakref.WeakSet[LoopCallback] = weakref.WeakSet()
        self._registered = False  # whether the event loop watches the descriptor of `_sleeper`

    def until_done(
        self, request: Request, seconds: float | None = None
    ) -> Generator[Any, None, None]:
        """Suspend until the request is done, at most `seconds`."""
        loop = self._loop()
        assert loop is not None
        self._thread = threading.get_ident()
        future = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._wake, future)
        waiting = weakref.ref(future)
        awaited = self._awaited()
        if awaited is None:
            awaited = Awaited()
            self._awaited = weakref.ref(awaited)

        def wake(_: Request) -> None:
            if self.closed():
                self._collect()
            elif threading.get_ident() == self._thread:
                self._wake(waiting())
            else:
                self._in_loop(self._wake, waiting())

        request._on_done(wake)
        awaited.add(future)
        try:
            self._start_looking()
            yield from future
        finally:
            if timer is not None:
                timer.cancel()
            awaited.discard(future)
            request.remove_done_callback(wake)

    def add_callback(self, callback: LoopCallback) -> None:
        """Make progress until the callback has been called, or is dropped."""
        self._thread = threading.get_ident()
        self._callbacks.add(callback)
        self._start_looking()

    def call(self, fn: Callable[[Request], object], request: Request) -> None:
        """Call fn(request) in the loop, or in this thread if the loop is closed."""
        if self.closed():
            fn(request)
        else:
            self._in_loop(fn, request)

    def closed(self) -> bool:
        loop = self._loop()
        return loop is None or loop.is_closed()

    def _collect(self) -> None:
        """A request that was awaited in a loop that is closed has completed. Collect what that loop
        has left, so that the message goes back now if nobody holds the request."""
        if not self._collected:
            self._collected = True
            gc.collect()

    def _start_looking(self) -> None:
        if not self._registered:
            self._look()

    def _wake(self, future: asyncio.Future[None] | None) -> None:
        if future is None:
            return
        awaited = self._awaited()
        if awaited is not None:
            awaited.discard(future)
        if not future.done() and not future.get_loop().is_closed():
            future.set_result(None)

    def _called(self, awaited: Awaited | None) -> None:
        """The callback of the loop, which holds `awaited` by it."""
        self._look()

    def _look(self) -> None:
        """Poll until nothing is left to do, then arm the descriptor and let the loop sleep."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return
        if not (self._awaited() or self._callbacks) or not self._worker.address:
            self._rest(loop)
        elif not self._poll(loop):
            loop.call_soon(self._called, self._awaited())

    def _poll(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Make progress, then arm the descriptor. Returns False if it cannot be armed, because more
        is left to do after PASSES passes."""
        try:
            for _ in range(PASSES):
                self._sleeper.progress()
                if self._sleeper.arm():
                    self._register(loop)
                    return True
        except Closed:  # the session was closed, which completes the awaited requests
            return True
        return False

    def _register(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._registered:
            loop.add_reader(self._sleeper.fileno(), self._called, self._awaited())
            self._registered = True

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop watching the descriptor, because nothing is awaited."""
        if self._registered:
            loop.remove_reader(self._sleeper.fileno())
            self._registered = False
        if not self._worker.address:
            _readers.get(loop, {}).pop(self._worker, None)

    def _in_loop(self, callback: Any, *args: Any) -> None:
        loop = self._loop()
        if loop is None or loop.is_closed():
            return
        if threading.get_ident() == self._thread:
            loop.call_soon(callback, *args)
        else:
            try:
                loop.call_soon_threadsafe(callback, *args)
            except RuntimeError:  # the loop was closed meanwhile: nothing waits in it any more
                return


class LoopCallback:
    """A callback that the completing thread calls, and that runs fn in the event loop."""

    def __init__(self, reader: Reader, fn: Callable[[Request], object]) -> None:
        self._reader = reader
        self._fn = fn

    def __call__(self, request: Request) -> None:
        self._reader.call(self._fn, request)

    def __eq__(self, other: object) -> bool:
        return self._fn == other

    __hash__ = object.__hash__


def loop_callback(request: Request, fn: Callable[[Request], object]) -> Callable[[Request], object]:
    """Return the callback that `add_done_callback` adds. If an event loop runs in this thread, the
    callback runs fn in that loop, and the loop makes progress until the request is done. Otherwise
    the callback is fn itself."""
    loop = asyncio._get_running_loop()
    if loop is None:
        return fn
    watching = reader(loop, request._worker)
    callback = LoopCallback(watching, fn)
    watching.add_callback(callback)
    return callback


_readers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Worker, Reader]] = (
    weakref.WeakKeyDictionary()
)


def reader(loop: asyncio.AbstractEventLoop, worker: Worker) -> Reader:
    """Return the Reader of this session in this loop."""
    try:
        return _readers[loop][worker]
    except KeyError:
        made = _readers.setdefault(loop, {})[worker] = Reader(loop, worker)
        return made


def await_request(request: Request) -> Generator[Any, None, Any]:
    """Do as `await request` does, for a request that is not done."""
    watching = reader(asyncio.get_running_loop(), request._worker)
    request._awaits += 1
    try:
        yield from watching.until_done(request)
    except BaseException as error:
        request._awaits -= 1
        if watching.closed():  # the request is withdrawn if nobody else holds it
            raise
        cancelled = isinstance(error, asyncio.CancelledError)
        if not request._awaits and request._requeue() and cancelled:
            # a second cancellation ends this wait: the request keeps its buffer
            with suppress(asyncio.CancelledError):
                yield from watching.until_done(request, SETTLE_SECONDS)
        raise
    request._awaits -= 1
    return request.result()
