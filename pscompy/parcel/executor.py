"""Executor: the interface of concurrent.futures over the ranks of a communicator."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pscompy.api.c.guard import condition, guard, inside, require_waiting, when_outside
from pscompy.api.timeouts import as_float
from pscompy.errors import PeerLost, PscomError
from pscompy.parcel.action import registered
from pscompy.parcel.call_group import LOST, call_many
from pscompy.parcel.future import Future

if TYPE_CHECKING:
    from pscompy.parcel.call_group import Result
    from pscompy.parcel.calls import ActionPeer
    from pscompy.world.communicator import Communicator

logger = logging.getLogger(__name__)


SIZE_MAX = 256  # maximum number of calls in one message
SOME = 32  # maximum number of calls that `map` hands out at a time
# Seconds from a message to its last result: below SHORT the next message has more calls, above LONG
# fewer.
SHORT, LONG = 0.002, 0.01
_NO_KEYWORDS: dict[str, Any] = {}  # the kwargs of calls without any; pickled once per message


class _Task(Future):
    """The future of a submitted call."""

    # where the call was sent: ActionPeer of the rank, number of the message, index of the call in
    # it
    sent: tuple[ActionPeer, int, int] | None = None
    unwanted = False

    def __init__(self, call: tuple[Any, ...], executor: Executor) -> None:
        super().__init__(_give_up, executor._service.worker)
        self.call = call
        self.executor = executor


def _give_up(task: Any) -> None:
    """Cancel a call at the rank that has it, if it was sent."""
    task.unwanted = True
    when_outside(task.executor._count_ended, 1)
    _withdraw(task)


def _withdraw(task: _Task) -> None:
    if task.sent is not None:
        task.executor._service.withdraw(*task.sent)


class _Rank:
    """A rank that runs calls. `open` is the number of calls that were sent to it and have no result
    yet, `size` the number of calls that one message to it carries."""

    __slots__ = ("open", "peer", "size")

    def __init__(self, peer: ActionPeer) -> None:
        self.peer = peer
        self.open = 0
        self.size = 1

    def adapt(self, count: int, seconds: float) -> None:
        """Change the number of calls per message after a message with `count` calls took
        `seconds`."""
        if seconds < SHORT and count == self.size:
            self.size = min(SIZE_MAX, 8 * self.size, 1 + int(self.size * SHORT / seconds))
        elif seconds > LONG:
            self.size = max(1, self.size // 2)


class Executor(concurrent.futures.Executor):
    """Runs actions on the other ranks of a communicator, or on rank 0 if that is the only rank.

    All ranks construct it together. On rank 0 it is used like the executors of concurrent.futures;
    the other ranks run actions within the constructor until rank 0 has shut the executor down:

        with pscompy.Executor(world) as executor:
            if executor is not None:  # on rank 0
                print(list(executor.map(work, range(100), chunksize=5)))

    Functions must be actions (`pscompy.action`), unless PSP_PARCEL_ACTIONS=any. A rank is given one
    call more than it can run at once, and more of them if they are short: as many in one message as
    end within some milliseconds. Further calls wait on rank 0.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._waiting: deque[_Task] = deque()
        self._open = 0  # number of tasks that wait or were sent, and have no result yet
        self._none_open = condition(guard)
        self._ending = threading.Thread(target=self._end, name="pscompy shutdown", daemon=True)
        self._ended = False
        self._full = False  # whether no rank takes further calls until some have ended
        self._service = comm._context.service()
        self._service.start()
        # number of calls that a rank may have at once even if they take long
        self._few = self._service.threads + 1
        self._ranks = [_Rank(comm._action_peer_of(rank)) for rank in range(1, comm.size) or (0,)]
        if comm.rank:
            self._ended = True
            comm.serve()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Run the function on one of the ranks. Raises `RuntimeError` after shutdown."""
        task = _Task((function, args, kwargs or _NO_KEYWORDS), self)
        self._check()
        if inside():
            when_outside(self._add_later, task)
        else:
            self._add((task,))
        return task

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
        timeout = as_float(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        if chunksize == 1:
            return _results(self._map(function, zip(*iterables, strict=False)), end)
        known = registered(function)
        target = known.name if known else function
        chunks = zip(itertools.repeat(target), _chunks(iterables, chunksize), strict=False)
        return _items(_results(self._map(call_many, chunks), end))

    def _map(self, function: Callable[..., Any], calls: Iterator[tuple[Any, ...]]) -> list[_Task]:
        """Add a task for each call. Tasks are added together as long as the calls come fast."""
        tasks: list[_Task] = []
        count, since = 1, time.monotonic()
        while some := [
            _Task((function, args, _NO_KEYWORDS), self) for args in itertools.islice(calls, count)
        ]:
            fast = time.monotonic() - since < SHORT
            count = min(SOME, 2 * count) if fast else max(1, count // 2)
            self._add(some)
            tasks += some
            since = time.monotonic()
        return tasks

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Release the other ranks once all calls have ended. May be called repeatedly.

        With `wait`, return only then. With `cancel_futures`, cancel the calls that still wait.
        """
        if wait:
            require_waiting()
        with guard:
            first, self._ended = not self._ended, True
            tasks = list(self._waiting) if cancel_futures else []
        for task in tasks:
            task.cancel()
        if first:
            self._ending.start()
        if wait and not self._comm.rank:
            self._ending.join()

    def _end(self) -> None:
        """Run the thread that ends the executor, for which `shutdown` need not wait."""
        with guard:
            self._none_open.wait_for(lambda: not self._open)
        try:
            self._comm.serve()
        except PscomError as error:  # the World has ended, so the other ranks serve no more
            logger.debug("the barrier at the end of the executor failed: %s", error)

    # ---- handing out calls to ranks ----

    def _check(self) -> None:
        if self._ended:
            raise RuntimeError("cannot submit anything after shutdown")

    def _add(self, tasks: Sequence[_Task]) -> None:
        """Hand tasks out, or let them wait if no rank takes further calls."""
        with guard:
            self._check()
            self._waiting.extend(tasks)
            self._open += len(tasks)
            full = self._full
        if not full:
            self._hand_out()

    def _add_later(self, task: _Task) -> None:
        """Add a task that the program holds already, so that only the task can report an error."""
        try:
            self._add((task,))
        except Exception as error:
            task.finish(None, error)

    def _hand_out(self) -> None:
        """Send waiting calls to ranks that can take more, to the least loaded rank first."""
        while taken := self._take():
            rank, tasks = taken
            if rank is None:
                lost = PeerLost("no rank is left that could run the action")
                self._finish([(task, None, lost) for task in tasks])
            elif tasks:
                self._send(rank, tasks)

    def _take(self) -> tuple[_Rank | None, list[_Task]] | None:
        """Remove the calls of one message from those that wait; returns the rank that gets them,
        and the calls.

        Returns None if no call waits or every rank has enough. The rank is None if no rank is
        left."""
        with guard:
            count = len(self._waiting)
            if not count:
                return None
            rank = min(self._ranks, key=lambda it: it.open, default=None)
            if rank is None:
                return None, self._take_waiting(count)
            room = max(self._few, 2 * rank.size) - rank.open
            self._full = room < min(rank.size, count)
            if self._full:
                return None
            level = -(-(count + sum([it.open for it in self._ranks])) // len(self._ranks))
            tasks = self._take_waiting(min(rank.size, count, level - rank.open))
            rank.open += len(tasks)
            return rank, tasks

    def _take_waiting(self, count: int) -> list[_Task]:
        """Remove `count` calls from those that wait; returns them without those that were cancelled
        meanwhile."""
        tasks = [self._waiting.popleft() for _ in range(count)]
        return [task for task in tasks if not task.unwanted]

    def _send(self, rank: _Rank, tasks: list[_Task]) -> None:
        sent = _Message(self, rank, tasks)
        try:
            number = self._service.submit_many(
                rank.peer, [task.call for task in tasks], sent.report, sent.refused
            )
        except Exception as error:
            sent.refused(error, lost=isinstance(error, LOST))
            return
        for index, task in enumerate(tasks):
            task.sent = rank.peer, number, index
            if task.unwanted:  # the task was cancelled during the send
                _withdraw(task)

    def _finish(self, results: list[tuple[_Task, Any, BaseException | None]]) -> None:
        """Complete the tasks, and count them as ended; `_give_up` counts those that were
        cancelled."""
        self._count_ended(
            sum([it.finish(value, error) or not it.cancelled() for it, value, error in results])
        )

    def _count_ended(self, count: int) -> None:
        with guard:
            self._open -= count
            if not self._open:
                self._none_open.notify_all()

    def _lose(self, rank: _Rank) -> None:
        with guard:
            self._full = False
            if rank in self._ranks:
                self._ranks.remove(rank)

    def __enter__(self) -> Executor | None:  # type: ignore[override]
        return None if self._comm.rank else self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class _Message:
    """The calls that were sent to a rank in one message."""

    def __init__(self, executor: Executor, rank: _Rank, tasks: list[_Task]) -> None:
        self._executor = executor
        self._rank = rank
        self._tasks = tasks
        self._open = len(tasks)
        self._since = time.monotonic()

    def report(self, results: list[Result], lost: bool) -> None:
        """Complete the futures of some of the calls, and hand out further calls. `lost` is true if
        the rank itself is lost, and false if an action has raised PeerLost about a third rank."""
        executor, rank = self._executor, self._rank
        if lost:
            executor._lose(rank)
        tasks = self._tasks
        executor._finish([(tasks[index], value, error) for index, value, error in results])
        self._open -= len(results)
        with guard:
            rank.open -= len(results)
            executor._full = False
            if not self._open:
                rank.adapt(len(self._tasks), time.monotonic() - self._since)
        executor._hand_out()

    def refused(self, error: BaseException, lost: bool = False) -> None:
        """Send each call alone, to find the one that cannot be sent or restored. If the message had
        one call only, or the rank is lost, report the error instead."""
        tasks = self._tasks
        if len(tasks) == 1 or lost:
            self.report([(index, None, error) for index in range(len(tasks))], lost)
            return
        for task in tasks:
            self._executor._send(self._rank, [task])


def _results(tasks: list[_Task], end: float | None) -> Generator[Any, None, None]:
    """Yield the results in order, until the time `end`; cancel all tasks that are left over."""
    tasks.reverse()
    try:
        while tasks:
            yield _next_result(tasks, end)
    finally:
        for task in tasks:
            task.cancel()


def _next_result(tasks: list[_Task], end: float | None) -> Any:
    result = tasks[-1].result(None if end is None else end - time.monotonic())
    tasks.pop()
    return result


def _items(results: Generator[Any, None, None]) -> Generator[Any, None, None]:
    """Yield the items of chunks. Closing this generator closes `results`, too."""
    with contextlib.closing(results):
        for chunk in results:
            yield from chunk


def _chunks(iterables: Sequence[Iterable[Any]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the arguments of `size` calls at a time, as one tuple for each parameter."""
    if len(iterables) == 1:  # the faster way, without a tuple for each call
        rest = iter(iterables[0])
        while column := tuple(itertools.islice(rest, size)):
            yield [column]
        return
    calls = zip(*iterables, strict=False)
    while columns := list(zip(*itertools.islice(calls, size), strict=True)):
        yield columns
