"""Awaiting requests in asyncio, without timers.

An event loop that awaits something of a session has one `Reader` for it: it sleeps on the
session's descriptor together with everything else that the loop waits for. The descriptor must
be armed before a sleep, and armed again after anybody has polled; `Worker.watch` tells when.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Generator
from functools import partial
from typing import Any

from pscompy._hot import Request, Worker
from pscompy.core import ffi, lib
from pscompy.errors import Closed

PASSES = 16  # before the loop's other callbacks get their turn


class Reader:
    """One session in one event loop, for as long as something of it is awaited."""

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
        self._loop = weakref.ref(loop)  # the loop holds us
        self._worker = worker
        self._thread = threading.get_ident()
        self._futures: set[asyncio.Future[None]] = set()  # of those who wait
        self._watching = False  # a watcher of ours is with the worker
        self._looking = False  # it is ourselves who poll
        self._watcher = partial(_polled, weakref.ref(self))  # the worker may keep it for long
        # A number of our own: the program may watch session.fileno() in the same loop.
        self._fd = os.dup(lib.psc_worker_fd(ffi.cast("psc_worker_t *", worker.address)))
        self._registered = False

    def __del__(self) -> None:
        os.close(self._fd)

    def until_done(self, request: Request) -> Generator[Any, None, None]:
        """Suspend until the request has ended."""
        loop = self._loop()
        assert loop is not None
        self._thread = threading.get_ident()
        future = loop.create_future()

        def wake(_: Request) -> None:
            if threading.get_ident() == self._thread:
                self._wake(future)
            else:
                self._in_loop(self._wake, future)

        request.add_done_callback(wake)
        self._futures.add(future)
        try:
            if not (self._watching and self._registered):
                self._look()
            yield from future
        finally:
            self._futures.discard(future)
            request.remove_done_callback(wake)

    def _wake(self, future: asyncio.Future[None]) -> None:
        self._futures.discard(future)
        if not future.done() and not future.get_loop().is_closed():
            future.set_result(None)

    def _look(self) -> None:
        """Poll until there is nothing left, then arm and let the loop sleep."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return
        if not self._futures or not self._worker.address:
            self._rest(loop)
        elif not self._poll(loop):
            loop.call_soon(self._look)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> bool:
        """False: there was more to do than one turn allows."""
        self._looking = True
        try:
            for _ in range(PASSES):
                self._worker.progress()
                if self._arm(loop):
                    return True
        except Closed:  # what was awaited ends with it
            return True
        finally:
            self._looking = False
        return False

    def _arm(self, loop: asyncio.AbstractEventLoop) -> bool:
        if not self._watching:  # before arming: others may poll right after it
            self._watching = True
            self._worker.watch(self._watcher)
        if not self._worker.arm():
            return False
        if not self._registered:
            loop.add_reader(self._fd, self._look)
            self._registered = True
        return True

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nobody waits: leave the loop alone."""
        if self._registered:
            loop.remove_reader(self._fd)
            self._registered = False
        if not self._worker.address:
            _readers.get(loop, {}).pop(self._worker, None)

    def _polled(self) -> None:
        """Somebody polled, in any thread: what we armed is used up."""
        self._watching = False
        if not (self._looking and threading.get_ident() == self._thread):
            self._in_loop(self._look)

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


def _polled(reader: weakref.ref[Reader]) -> None:
    watching = reader()
    if watching is not None:
        watching._polled()


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
    yield from reader(asyncio.get_running_loop(), request._worker).until_done(request)
    return request.result()
