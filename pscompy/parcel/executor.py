"""Executor: the interface of concurrent.futures over the ranks of a communicator."""

from __future__ import annotations

import concurrent.futures
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pscompy.errors import Closed, PeerLost, PscomError
from pscompy.parcel.action import registered
from pscompy.parcel.action_service import call_many
from pscompy.parcel.future import Future

if TYPE_CHECKING:
    from pscompy.world.communicator import Communicator

logger = logging.getLogger(__name__)


class _Task:
    """A submitted call: `sent` is the future of the rank that runs it, None while it waits."""

    __slots__ = ("call", "future", "sent")

    def __init__(self, call: Callable[[int], Future], future: Future) -> None:
        self.call = call
        self.future = future
        self.sent: Future | None = None


class Executor(concurrent.futures.Executor):
    """Runs actions on the other ranks of a communicator, or on rank 0 if that is the only rank.

    All ranks construct it together. On rank 0 it is used like the executors of concurrent.futures;
    the other ranks run actions within the constructor until rank 0 has shut the executor down:

        with pscompy.Executor(world) as executor:
            if executor is not None:  # on rank 0
                print(list(executor.map(work, range(100), chunksize=5)))

    Functions must be actions (`pscompy.action`), unless PSP_PARCEL_ACTIONS=any. A rank is given at
    most one call more than it can run at once; further calls wait on rank 0.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._lock = threading.RLock()
        self._waiting: deque[_Task] = deque()
        self._open: set[_Task] = set()  # tasks that wait or were sent, and have no result yet
        self._ending = threading.Thread(target=self._end, name="pscompy shutdown", daemon=True)
        self._ended = False
        self._load = dict.fromkeys(range(1, comm.size) or (0,), 0)
        service = comm._context.service()
        service.start()
        self._most = service.threads + 1
        if comm.rank:
            self._ended = True
            comm.serve()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Run the function on one of the ranks. Raises `RuntimeError` after shutdown."""
        future = Future(self._withdraw)
        with self._lock:
            if self._ended:
                raise RuntimeError("cannot submit anything after shutdown")
            call = partial(self._comm.submit, **kwargs)
            task = _Task(lambda rank: call(rank, function, *args), future)
            self._waiting.append(task)
            self._open.add(task)
        self._hand_out()
        return future

    def map(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Any]:
        """Yield the results in order, as concurrent.futures does; `chunksize` calls are sent in one
        message. `timeout` is in seconds. Raises `ValueError` if `chunksize` is less than 1."""
        if chunksize < 1:
            raise ValueError("chunksize must be at least 1")
        if chunksize == 1:
            return super().map(function, *iterables, timeout=timeout)
        known = registered(function)
        target = known.name if known else function
        chunks = _chunks(zip(*iterables, strict=False), chunksize)
        parts = super().map(call_many, itertools.repeat(target), chunks, timeout=timeout)
        return itertools.chain.from_iterable(parts)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Release the other ranks once all calls have ended. May be called repeatedly.

        With `wait`, return only then. With `cancel_futures`, cancel the calls that still wait.
        """
        with self._lock:
            first, self._ended = not self._ended, True
            tasks = list(self._waiting) if cancel_futures else []
        for task in tasks:
            task.future.cancel()
        if first:
            self._ending.start()
        if wait and not self._comm.rank:
            self._ending.join()

    def _wait(self) -> None:
        with self._lock:
            futures = [task.future for task in self._open]
        concurrent.futures.wait(futures)

    def _end(self) -> None:
        """Body of the thread that ends the executor; `shutdown` need not wait for it."""
        self._wait()
        try:
            self._comm.serve()
        except PscomError as error:  # the World has ended, so the other ranks serve no more
            logger.debug("the barrier at the end of the executor failed: %s", error)

    # ---- handing out ----

    def _hand_out(self) -> None:
        """Send waiting calls to ranks that can take more, to the least loaded rank first."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                rank = min(self._load, key=self._load.__getitem__, default=None)
                if rank is not None and self._load[rank] >= self._most:
                    return
                task = self._waiting.popleft()
                if rank is not None:
                    self._load[rank] += 1
            if rank is None:
                self._complete(task, None, PeerLost("no rank is left that could run the action"))
            else:
                self._send(task, rank)

    def _send(self, task: _Task, rank: int) -> None:
        if task.future.done():  # the future was cancelled while the task waited
            self._free(rank)
            self._complete(task, None, None)
            return
        try:
            task.sent = task.call(rank)
        except Exception as error:
            self._free(rank)
            self._complete(task, None, error)
            return
        if task.future.cancelled():  # the future was cancelled during the send
            task.sent.cancel()
        task.sent.add_done_callback(partial(self._answered, task, rank))

    def _answered(self, task: _Task, rank: int, sent: concurrent.futures.Future[Any]) -> None:
        error = None if sent.cancelled() else sent.exception()
        if isinstance(error, PeerLost | Closed):
            with self._lock:
                self._load.pop(rank, None)
        self._free(rank)
        value = None if error or sent.cancelled() else sent.result()
        self._complete(task, value, error)
        self._hand_out()

    def _free(self, rank: int) -> None:
        with self._lock:
            if rank in self._load:
                self._load[rank] -= 1

    def _complete(self, task: _Task, value: object, error: BaseException | None) -> None:
        with self._lock:
            self._open.discard(task)
        task.future.finish(value, error)

    def _withdraw(self, future: Future) -> None:
        """Cancel the remote call of `future`. A task that still waits is skipped by `_send`."""
        with self._lock:
            sent = [task.sent for task in self._open if task.future is future]
        for one in sent:
            if one is not None:
                one.cancel()

    def __enter__(self) -> Executor | None:  # type: ignore[override]
        return None if self._comm.rank else self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while chunk := list(itertools.islice(rest, size)):
        yield chunk
