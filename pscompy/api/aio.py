"""Awaiting requests in asyncio.

An event loop that awaits something of a session has one `Reader` for it, which sleeps on a
descriptor of its own (`Worker.sleeper`) together with everything else that the loop waits for. The
descriptor must be armed before a sleep; it becomes readable when there is something, and when
another thread has polled and so used up what was armed.

An await that is cancelled takes its request back, unless another await is left for it. A receive
that has matched gives its message back: `Request._give_back`.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from pscompy.binding._binding import Request, Worker
from pscompy.errors import Closed

PASSES = 16  # before the loop's other callbacks get their turn
SETTLE_SECONDS = 1.0  # for the rest of a message that goes back; then its peer has stalled


class Reader:
    """One session in one event loop, for as long as something of it is awaited."""

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
        self._loop = weakref.ref(loop)  # the loop holds us
        self._worker = worker
        self._sleeper = worker.sleeper()
        self._thread = threading.get_ident()
        self._futures: set[asyncio.Future[None]] = set()  # of those who wait
        self._callbacks: weakref.WeakSet[LoopCallback] = weakref.WeakSet()  # those that wait
        self._registered = False  # and armed, or to be looked at by the loop soon

    def until_done(
        self, request: Request, seconds: float | None = None
    ) -> Generator[Any, None, None]:
        """Suspend until the request has ended, or so many seconds are over."""
        loop = self._loop()
        assert loop is not None
        self._thread = threading.get_ident()
        future = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._wake, future)

        def wake(_: Request) -> None:
            if threading.get_ident() == self._thread:
                self._wake(future)
            else:
                self._in_loop(self._wake, future)

        request._on_done(wake)
        self._futures.add(future)
        try:
            self._start_looking()
            yield from future
        finally:
            if timer is not None:
                timer.cancel()
            self._futures.discard(future)
            request.remove_done_callback(wake)

    def add_callback(self, callback: LoopCallback) -> None:
        """Move messages until it has been called, or is forgotten."""
        self._thread = threading.get_ident()
        self._callbacks.add(callback)
        self._start_looking()

    def call(self, fn: Callable[[Request], object], request: Request) -> None:
        """fn(request), in the loop; where that is closed, here."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            fn(request)
        else:
            self._in_loop(fn, request)

    def _start_looking(self) -> None:
        if not self._registered:
            self._look()

    def _wake(self, future: asyncio.Future[None]) -> None:
        self._futures.discard(future)
        if not future.done() and not future.get_loop().is_closed():
            future.set_result(None)

    def _look(self) -> None:
        """Poll until there is nothing left, then arm and let the loop sleep."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return
        if not (self._futures or self._callbacks) or not self._worker.address:
            self._rest(loop)
        elif not self._poll(loop):
            loop.call_soon(self._look)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> bool:
        """False: there was more to do than one turn allows."""
        try:
            for _ in range(PASSES):
                self._sleeper.progress()
                if self._sleeper.arm():
                    self._register(loop)
                    return True
        except Closed:  # what was awaited ends with it
            return True
        return False

    def _register(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._registered:
            loop.add_reader(self._sleeper.fileno(), self._look)
            self._registered = True

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nobody waits: leave the loop alone."""
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
            except RuntimeError:  # closed in this moment: nobody waits any more
                return


class LoopCallback:
    """The callback of a request, called in the thread that completes it: fn runs in the loop."""

    def __init__(self, reader: Reader, fn: Callable[[Request], object]) -> None:
        self._reader = reader
        self._fn = fn

    def __call__(self, request: Request) -> None:
        self._reader.call(self._fn, request)

    def __eq__(self, other: object) -> bool:
        return self._fn == other

    __hash__ = object.__hash__


def loop_callback(request: Request, fn: Callable[[Request], object]) -> Callable[[Request], object]:
    """The callback that `add_done_callback` adds: where an event loop runs in this thread, one
    that runs fn there, and messages move until then."""
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
    """The one of this session in this loop."""
    try:
        return _readers[loop][worker]
    except KeyError:
        made = _readers.setdefault(loop, {})[worker] = Reader(loop, worker)
        return made


def await_request(request: Request) -> Generator[Any, None, Any]:
    """What `await request` runs where the request has not ended."""
    watching = reader(asyncio.get_running_loop(), request._worker)
    request._awaits += 1
    try:
        yield from watching.until_done(request)
    except BaseException as error:
        request._awaits -= 1
        cancelled = isinstance(error, asyncio.CancelledError)
        if not request._awaits and request._give_back() and cancelled:
            with suppress(asyncio.CancelledError):  # again: the request keeps its buffer
                yield from watching.until_done(request, SETTLE_SECONDS)
        raise
    request._awaits -= 1
    return request.result()
