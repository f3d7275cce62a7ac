"""Several calls of actions in one message: a Batch where they are made, a CallGroup where they run.

Each call of a group runs as if it had arrived alone; a thread that has begun a group takes one call
of it after the other. Their results are sent together as they become ready: when all calls have
ended, and `DELAY` seconds after a result that has not been sent. So a short call costs a part of a
message instead of two, and no result waits for a long call.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from pscompy.api.c.guard import guard
from pscompy.errors import Cancelled, Closed, ParcelError, PeerLost, ProtocolError, describe
from pscompy.parcel.action import (
    Registered,
    Running,
    action,
    current_action,
    note_interrupt,
    run_as,
)
from pscompy.parcel.remote_errors import put_together, take_apart

if TYPE_CHECKING:
    from pscompy.parcel.archive import Archive
    from pscompy.parcel.objects import Objects

DELAY = 0.001  # seconds that a result waits for further results at most
LOST = (PeerLost, Closed)

Result = tuple[int, Any, "BaseException | None"]
"""The index of a call, its value, and its exception or None."""


class Called(Running):
    """An action that a peer has called; `resolve` finds further actions by their names, and `items`
    has the items of a chunk of `Executor.map` that have not begun."""

    items: Iterator[Any] = iter(())

    def __init__(self, source: Any, resolve: Callable[[object], Registered]) -> None:
        super().__init__("?", source)
        self.resolve = resolve

    def cancel(self) -> None:
        super().cancel()
        deque(self.items, 0)  # exhausts the iterator, so that call_many begins no further item

    def prepare(self, asked: Any) -> Registered:
        """Return the function that the call `asked` names. Raises `ProtocolError` if `asked` is no
        call, and `Unsupported` if the function may not be called.
        """
        if not (isinstance(asked, tuple) and len(asked) == 3 and isinstance(asked[1], tuple)):
            raise ProtocolError("an object that is not a call of an action")
        found = self.resolve(asked[0])
        self.name = found.name
        return found

    def outcome(self, found: Registered, asked: Any, answers: Objects) -> tuple[bool, Any]:
        """Run the function. Returns True and its value, or False and the result of `take_apart` for
        its exception."""
        try:
            if self._cancelled:
                raise Cancelled("the action was cancelled before it began")
            return True, run_as(self, found.function, asked[1], asked[2])
        except BaseException as error:
            note_interrupt(error)
            return False, take_apart(error, answers)


def packed_answer(answers: Objects, name: str, good: bool, value: object) -> bytes | Archive:
    """Return the serialised answer of one call; an exception replaces a value that cannot be
    sent."""
    try:
        return answers.take_apart((good, value))
    except Exception as error:
        return answers.take_apart((False, _unsendable(answers, name, error)))


def _unsendable(answers: Objects, name: str, error: Exception) -> tuple[bytes | None, str]:
    made = ParcelError(f"the result of {name} cannot be sent: {describe(error)}")
    return take_apart(made, answers)


class Part(NamedTuple):
    """Results that are sent together: the indexes and the values of calls that have returned, and
    the index and the exception (from `take_apart`) of each call that has failed."""

    ended: list[int]
    values: list[Any]
    failed: list[tuple[int, Any]]


class CallGroup:
    """The calls of one message at the peer that runs them.

    `delayed(send)` calls send() after DELAY. `send(packed)` sends a part of the answer, and
    `ended()` is called after the last part.
    """

    def __init__(
        self,
        answers: Objects,
        send: Callable[[bytes | Archive], object],
        delayed: Callable[[Callable[[], object]], object],
        ended: Callable[[], object],
    ) -> None:
        self._answers = answers
        self._send = send
        self._delayed = delayed
        self._ended = ended
        self._calls: list[Called] = []
        self._waiting: deque[tuple[int, Registered, Any]] = deque()  # calls that wait for a thread
        self._ready = Part([], [], [])
        self._open = 0

    def begin(
        self,
        asked: list[Any],
        call: Callable[[], Called],
        put: Callable[[Callable[[], object]], None],
        threads: int,
    ) -> None:
        """Begin all calls; `call()` makes a Called. `put(work)` lets a thread call work() for as
        long as it returns True; up to `threads` threads do so, all but one only after DELAY."""
        self._calls = [call() for _ in asked]
        self._open = len(asked)
        if not asked:
            self._ended()
        for index, (one, given) in enumerate(zip(self._calls, asked, strict=True)):
            self._begin_one(index, one, given)
        waiting = len(self._waiting)
        if waiting:
            put(self._run_some)  # another thread may begin a call before this thread goes on
        if waiting > 1 and threads > 1:
            self._delayed(partial(self._spread, put, threads - 1))

    def _begin_one(self, index: int, call: Called, asked: Any) -> None:
        try:
            found = call.prepare(asked)
        except Exception as error:
            self._note(index, False, take_apart(error, self._answers))
            return
        if found.inline:
            self._note(index, *call.outcome(found, asked, self._answers))
        else:
            self._waiting.append((index, found, asked))

    def _spread(self, put: Callable[[Callable[[], object]], None], threads: int) -> None:
        for _ in range(min(threads, len(self._waiting))):
            put(self._run_some)

    def _run_some(self) -> bool:
        """Run calls that have not begun, one after the other, for DELAY or until one has failed,
        perhaps by a KeyboardInterrupt. Returns whether there are more of them."""
        until = time.monotonic() + DELAY
        good = True
        while self._waiting and good and time.monotonic() < until:
            try:
                index, found, asked = self._waiting.popleft()
            except IndexError:  # another thread has taken the last call
                break
            good, value = self._calls[index].outcome(found, asked, self._answers)
            self._note(index, good, value)
        return bool(self._waiting)

    def cancel(self, index: int) -> None:
        """Cancel one of the calls."""
        if index < len(self._calls):
            self._calls[index].cancel()

    def _note(self, index: int, good: bool, value: object) -> None:
        with guard:
            first = not (self._ready.ended or self._ready.failed)
            if good:
                self._ready.ended.append(index)
                self._ready.values.append(value)
            else:
                self._ready.failed.append((index, value))
            self._open -= 1
            last = not self._open
        if last:
            self._flush()
            self._ended()
        elif first:
            self._delayed(self._flush)

    def _flush(self) -> None:
        """Send the results that are ready."""
        empty = Part([], [], [])
        with guard:
            ready, self._ready = self._ready, empty
        if not (ready.ended or ready.failed):
            return
        try:
            packed = self._answers.take_apart(tuple(ready))
        except Exception:
            packed = self._answers.take_apart(self._sendable(ready))
        self._send(packed)

    def _sendable(self, ready: Part) -> tuple[Any, ...]:
        """Return the results `ready` with an exception in place of each value that cannot be
        sent."""
        made = Part([], [], ready.failed)
        for index, value in zip(ready.ended, ready.values, strict=True):
            try:
                self._answers.take_apart(value)
            except Exception as error:
                name = self._calls[index].name
                made.failed.append((index, _unsendable(self._answers, name, error)))
            else:
                made.ended.append(index)
                made.values.append(value)
        return tuple(made)


def _is_part(part: object) -> bool:
    """Return whether the peer has sent the fields of a `Part`, with an index for each result."""
    if not (isinstance(part, tuple) and list(map(type, part)) == [list] * 3):
        return False
    ended, values, failed = part
    if len(ended) != len(values) or not all(type(it) is tuple and len(it) == 2 for it in failed):
        return False
    return all(type(index) is int for index in (*ended, *(index for index, _ in failed)))


class Batch:
    """The calling side of several calls that were sent in one message. It reports the result of
    each call at most once, by `report(results, lost)`, where `lost` is true if the connection has
    ended, and calls `refused(error)` if the peer could not restore the message."""

    def __init__(
        self,
        count: int,
        report: Callable[[list[Result], bool], object],
        refused: Callable[[BaseException], object],
    ) -> None:
        self._left = set(range(count))
        self._report = report
        self._refused = refused

    def done(self) -> bool:
        return not self._left

    def take(self, part: Any, answers: Objects) -> None:
        """Report the results of one part of the answer. Raises `ProtocolError` for a bad part."""
        if isinstance(part, tuple) and len(part) == 2 and part[0] is False:
            self.drop()
            self._refused(put_together(part[1], answers))
            return
        if not _is_part(part):
            raise ProtocolError("this is no answer of several actions")
        ended, values, failed = part
        results: list[Result] = list(zip(ended, values, repeat(None)))
        results += [(index, None, put_together(error, answers)) for index, error in failed]
        reported = {index for index, _, _ in results}
        if not len(reported) == len(results) == len(values) + len(failed) or reported - self._left:
            raise ProtocolError("this is no answer of one of several actions")
        self._left -= reported
        self._report(results, False)

    def fail(self, error: BaseException) -> None:
        """Report the exception as the result of all calls that were not answered."""
        left, self._left = self._left, set()
        self._report([(index, None, error) for index in sorted(left)], isinstance(error, LOST))

    def drop(self) -> None:
        """Report no further results, for example because the calls could not be sent."""
        self._left = set()


@action(name="pscompy:map")
def call_many(target: object, columns: list[tuple[Any, ...]]) -> list[Any]:
    """Run one chunk of `Executor.map`, as an action. Returns `list(map(target, *columns))`,
    but a StopIteration of the target is an error.

    Raises `Cancelled` between two items if the call was cancelled.
    """
    call = current_action()
    assert isinstance(call, Called)
    first, *others = columns
    call.items = iter(first)
    if not call.cancelled:
        function = call.resolve(target).function
        results = [function(*args) for args in zip(call.items, *others)]  # noqa: B905
    if call.cancelled:
        raise Cancelled("the action was cancelled")
    return results
