"""Several calls of actions in one message: a Batch where they are made, a Frame where they run.

Each call of a frame runs as if it had come alone; a thread that has begun a frame takes one call of
it after the other. Their results are sent together as they become ready: when all calls have ended,
and `DELAY` seconds after a result that has not been sent. So a short call costs a part of a message
instead of two, and no result waits for a long call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pscompy.errors import Cancelled, ParcelError, ProtocolError, describe
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

Result = tuple[int, Any, "BaseException | None"]
"""The index of a call, its value, and its exception or None."""


class Called(Running):
    """An action that a peer has called; `resolve` finds further actions by their names."""

    def __init__(self, source: Any, resolve: Callable[[object], Registered]) -> None:
        super().__init__("?", source)
        self.resolve = resolve

    def prepare(self, asked: object) -> tuple[Callable[[], Any], bool]:
        """The function with its arguments, and whether it runs inline.

        Raises `ProtocolError` if `asked` is no call, and `Unsupported` if the function may not be
        called.
        """
        if not (isinstance(asked, tuple) and len(asked) == 3 and isinstance(asked[1], tuple)):
            raise ProtocolError("an object that is not a call of an action")
        target, args, kwargs = asked
        found = self.resolve(target)
        self.name = found.name
        return lambda: found.function(*args, **kwargs), found.inline

    def begins_at_once(self, asked: Any) -> bool:
        """Whether the call needs no thread: its function runs inline, or it is sure to fail."""
        try:
            return self.resolve(asked[0]).inline
        except Exception:
            return True

    def outcome(self, function: Callable[[], Any], answers: Objects) -> tuple[bool, Any]:
        """Run the function: True and its value, or False and its exception in parts."""
        try:
            if self.cancelled:
                raise Cancelled("the action was cancelled before it began")
            return True, run_as(self, function)
        except BaseException as error:
            note_interrupt(error)
            return False, take_apart(error, answers)


def packed_answer(answers: Objects, name: str, good: bool, value: object) -> bytes | Archive:
    """The answer of one call; an exception says so if its value cannot be sent."""
    try:
        return answers.take_apart((good, value))
    except Exception as error:
        return answers.take_apart((False, _unsendable(answers, name, error)))


def _unsendable(answers: Objects, name: str, error: Exception) -> tuple[bytes | None, str]:
    made = ParcelError(f"the result of {name} cannot be sent: {describe(error)}")
    return take_apart(made, answers)


class Frame:
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
        self._lock = threading.Lock()
        self._calls: list[Called] = []
        self._asked: list[Any] = []  # None in place of a call that has begun
        self._waiting: deque[int] = deque()  # the calls that wait for a thread
        self._ready: list[tuple[int, bool, Any]] = []
        self._open = 0

    def begin(
        self,
        asked: list[Any],
        call: Callable[[], Called],
        put: Callable[[Callable[[], object]], None],
        threads: int,
    ) -> None:
        """Begin all calls; `call()` makes a Called. `put(work)` lets a thread call work() for as
        long as it returns True; that many threads may do so."""
        self._calls = [call() for _ in asked]
        self._asked = asked
        self._open = len(asked)
        if not asked:
            self._ended()
        for index, one in enumerate(self._calls):
            if one.begins_at_once(asked[index]):
                self._run(index)
            else:
                self._waiting.append(index)
        for _ in range(min(threads, len(self._waiting))):
            put(self._run_next)

    def _run(self, index: int) -> None:
        call, asked = self._calls[index], self._asked[index]
        self._asked[index] = None
        try:
            function, _ = call.prepare(asked)
        except BaseException as error:
            self._note(index, False, take_apart(error, self._answers))
            return
        self._note(index, *call.outcome(function, self._answers))

    def _run_next(self) -> bool:
        """Run a call that has not begun. Returns whether there are more of them."""
        try:
            index = self._waiting.popleft()
        except IndexError:
            return False
        self._run(index)
        return bool(self._waiting)

    def cancel(self, index: int) -> None:
        """Cancel one of the calls."""
        if index < len(self._calls):
            self._calls[index].cancel()

    def _note(self, index: int, good: bool, value: object) -> None:
        with self._lock:
            self._ready.append((index, good, value))
            self._open -= 1
            last, first = not self._open, len(self._ready) == 1
        if last:
            self._flush()
            self._ended()
        elif first:
            self._delayed(self._flush)

    def _flush(self) -> None:
        """Send the results that are ready."""
        with self._lock:
            ready, self._ready = self._ready, []
        if not ready:
            return
        try:
            packed = self._answers.take_apart(ready)
        except Exception:
            packed = self._answers.take_apart([self._sendable(*one) for one in ready])
        self._send(packed)

    def _sendable(self, index: int, good: bool, value: object) -> tuple[int, bool, Any]:
        try:
            self._answers.take_apart(value)
        except Exception as error:
            return index, False, _unsendable(self._answers, self._calls[index].name, error)
        return index, good, value


class Batch:
    """The calls of one message where they were made; reports each result once. `refused(error)` is
    called if the peer could not restore the message."""

    def __init__(
        self,
        count: int,
        report: Callable[[list[Result]], object],
        refused: Callable[[BaseException], object],
    ) -> None:
        self._left = set(range(count))
        self._report = report
        self._refused = refused

    @property
    def complete(self) -> bool:
        return not self._left

    def take(self, part: object, answers: Objects) -> None:
        """Report the results of one part of the answer. Raises `ProtocolError`."""
        if isinstance(part, tuple) and len(part) == 2 and part[0] is False:
            self.drop()
            self._refused(put_together(part[1], answers))
            return
        if not isinstance(part, list):
            raise ProtocolError("this is no answer of several actions")
        self._report([self._result(one, answers) for one in part])

    def _result(self, given: object, answers: Objects) -> Result:
        if not (isinstance(given, tuple) and len(given) == 3 and given[0] in self._left):
            raise ProtocolError("this is no answer of one of several actions")
        index, good, value = given
        self._left.remove(index)
        return (index, value, None) if good else (index, None, put_together(value, answers))

    def fail(self, error: BaseException) -> None:
        """Report the exception as the result of all calls that were not answered."""
        left, self._left = self._left, set()
        self._report([(index, None, error) for index in sorted(left)])

    def drop(self) -> None:
        """Report nothing any more."""
        self._left = set()


@action(name="pscompy:map")
def call_many(target: object, items: list[tuple[Any, ...]]) -> list[Any]:
    """The action that runs one chunk of `Executor.map`: calls `target(*args)` for each item.

    Raises `Cancelled` between two items if the call was cancelled.
    """
    call = current_action()
    assert isinstance(call, Called)
    function = call.resolve(target).function
    results = []
    for args in items:
        if call.cancelled:
            raise Cancelled("the action was cancelled")
        results.append(function(*args))
    return results
