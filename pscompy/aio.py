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
        self._waiting = 0
        self._watching = False  # a watcher of ours is with the worker
        self._looking = False  # it is ourselves who poll
        # A number of our own: the program may watch session.fileno() in the same loop.
        self._fd = os.dup(lib.psc_worker_fd(_core_worker(worker)))
        self._registered = False

    def __del__(self) -> None:
        os.close(self._fd)

    def until_done(self, request: Request) -> Generator[Any, None, None]:
        """Suspend until the request has ended."""
        loop = self._loop()
        assert loop is not None
        future = loop.create_future()

        def wake(_: Request) -> None:
            self._in_loop(_set, future)

        request.add_done_callback(wake)
        self._waiting += 1
        try:
            self._look()
            yield from future
        finally:
            self._waiting -= 1
            request.remove_done_callback(wake)

    def _look(self) -> None:
        """Poll until there is nothing left, then arm and let the loop sleep."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return
        if not self._waiting or not self._worker.address:
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
        if lib.psc_worker_arm(_core_worker(self._worker)) != lib.PSC_OK:
            return False
        if not self._registered:
            loop.add_reader(self._fd, self._look)
            self._registered = True
        if not self._watching:
            self._worker.watch(self._polled)
            self._watching = True
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
        if not self._looking:
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


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _core_worker(worker: Worker) -> Any:
    return ffi.cast("psc_worker_t *", worker.address)


_readers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Worker, Reader]] = (
    weakref.WeakKeyDictionary()
)


def reader(loop: asyncio.AbstractEventLoop, worker: Worker) -> Reader:
    """The one of this session in this loop."""
    of_loop = _readers.setdefault(loop, {})
    if worker not in of_loop:
        of_loop[worker] = Reader(loop, worker)
    return of_loop[worker]


def await_request(request: Request) -> Generator[Any, None, Any]:
    """What `await request` runs: suspends only if the request has not ended."""
    if not request.test():
        loop = asyncio.get_running_loop()
        yield from reader(loop, request._worker).until_done(request)
    return request.result()
