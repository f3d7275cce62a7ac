"""The actions of one session: runs the calls of peers, and completes futures with their answers.

Calls and answers are objects, each in a context of their own. Both carry the number of the call in
their tag. So a call whose arguments cannot be restored is answered too, and the core matches an
answer with the receive of its future. Every call is answered exactly once, also if it was
cancelled. A thread drives progress while the program computes; the callback of a message runs in
whichever thread makes progress.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pscompy.api.request import Request
from pscompy.binding import _binding
from pscompy.config.parsers import AUTO
from pscompy.errors import (
    Cancelled,
    ParcelError,
    ProtocolError,
    PscomError,
    Timeout,
    Unsupported,
    describe,
)
from pscompy.parcel.action import (
    Registered,
    Running,
    action,
    current_action,
    find,
    name_of,
    registered,
    run_as,
)
from pscompy.parcel.future import Future
from pscompy.parcel.objects import Objects, head_of, receive, when_all_ended
from pscompy.parcel.remote_errors import put_together, take_apart
from pscompy.parcel.thread_pool import Threads, processors

NUMBERS = 0x3FFFFFFF  # the tag of a call has one bit more, which is set to cancel the call
BACKLOG = 64  # calls that are accepted beyond those that can run at once

logger = logging.getLogger(__name__)


class Links:
    """The Objects that carry calls to and from one peer, and those that carry their answers."""

    __slots__ = ("answers", "calls", "numbers", "source")

    def __init__(self, source: object, calls: Objects, answers: Objects) -> None:
        self.source = source
        self.calls = calls
        self.answers = answers
        self.numbers = itertools.count()


class Options:
    """The options of calls that `with_options` sets.

    `timeout`: seconds until the future of a call fails with `Timeout`, or None. `on_sent()` is
    called when the call has been sent.
    """

    __slots__ = ("on_sent", "timeout")

    def __init__(
        self, timeout: float | None = None, on_sent: Callable[[], object] | None = None
    ) -> None:
        self.timeout = timeout
        self.on_sent = on_sent


class Call(Running):
    """A call that a peer has sent."""

    def __init__(self, links: Links, number: int) -> None:
        super().__init__("?", links.source)
        self.resolve: Callable[[object], Registered]
        self.links = links
        self.number = number


class Service:
    """Runs the calls of peers and sends calls to peers.

    `anybody` receives from all peers in the context of calls. `links(source)` returns the Links of
    the peer that a Status names, or None if that peer has gone.
    """

    def __init__(
        self,
        worker: _binding.Worker,
        anybody: _binding.Communicator,
        links: Callable[[Any], Links | None],
        config: Mapping[str, Any],
        name: str,
    ) -> None:
        self._worker = worker
        self._anybody = anybody
        self._links = links
        self._any_function = config["PARCEL_ACTIONS"] == "any"
        self._name = f"pscompy actions {name}"
        most = config["PARCEL_THREADS"]
        self._threads = Threads(processors() if most == AUTO else most, self._name)
        self._most_calls = self._threads.most + BACKLOG
        self._lock = threading.Lock()
        self._begun = False
        self._listening = False
        self._calls: dict[tuple[int, int], Call] = {}  # calls of peers, by id() of Links and number
        self._asked: set[Future] = set()  # futures of our calls that are not answered yet
        self._deadlines: list[tuple[float, int, Future]] = []
        self._order = itertools.count()

    @property
    def threads(self) -> int:
        """The number of actions that can run at once."""
        return self._threads.most

    def start(self) -> None:
        """Begin to accept calls. May be called repeatedly."""
        if self._begun:
            return
        with self._lock:
            if self._begun:
                return
            self._begun = True
            self._alarm = self._worker.event()
        threading.Thread(target=self._move_on, name=self._name, daemon=True).start()
        self._listen()

    # ---- calls that this process sends ----

    def submit(
        self,
        links: Links,
        function: Callable[..., object],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: Options,
    ) -> Future:
        """Call a function on the peer of `links`.

        Raises the exceptions of the serialiser, and `PscomError` if the call cannot be sent.
        """
        self.start()
        known = registered(function)
        packed = links.calls.take_apart((known.name if known else function, args, kwargs))
        number = next(links.numbers) & NUMBERS
        future = Future(partial(self._withdraw, links, number))
        answer = receive(
            self._worker,
            links.answers.heads,
            links.answers.heads.irecv(None, number),
            lambda _: links.answers,
        )
        self._asked.add(future)
        future.add_done_callback(self._asked.discard)
        answer._on_done(partial(self._answered, links, future))
        try:
            sent = links.calls.begin(packed, number << 1)
        except PscomError:
            answer.cancel()
            raise
        if options.on_sent is not None:
            sent._on_done(partial(_call_on_sent, options.on_sent))
        if options.timeout is not None:
            self._set_alarm(time.monotonic() + options.timeout, future)
        return future

    def wait_for_answers(self, timeout: float | None = None) -> None:
        """Wait up to `timeout` seconds until all calls that were sent have ended. Raises
        `Timeout`."""
        import concurrent.futures

        if concurrent.futures.wait(self._asked.copy(), timeout).not_done:
            raise Timeout("not all actions have ended")

    def _answered(self, links: Links, future: Future, answer: Request) -> None:
        try:
            good, value = answer.result()
        except BaseException as error:
            future.finish(None, error)
            return
        if good:
            future.finish(value, None)
        else:
            future.finish(None, put_together(value, links.answers))

    def _withdraw(self, links: Links, number: int, future: Future) -> None:
        try:
            links.calls.heads.isend(b"", number << 1 | 1)
        except PscomError as error:
            logger.debug("cannot cancel an action: %s", error)

    # ---- progress and deadlines ----

    def _set_alarm(self, deadline: float, future: Future) -> None:
        with self._lock:
            heapq.heappush(self._deadlines, (deadline, next(self._order), future))
            sooner = self._deadlines[0][2] is future
            alarm = self._alarm
        if sooner:
            alarm._complete(None)

    def _move_on(self) -> None:
        """Body of the service's thread: drives progress while it waits for the next deadline."""
        try:
            while True:
                try:
                    self._alarm.wait(self._until_next())
                    self._alarm = self._worker.event()
                except Timeout:
                    pass
                self._expire()
        except PscomError as error:
            logger.debug("%s ends: %s", self._name, error)
        finally:
            self._threads.end()

    def _until_next(self) -> float | None:
        with self._lock:
            while self._deadlines and self._deadlines[0][2].done():
                heapq.heappop(self._deadlines)
            if not self._deadlines:
                return None
            return max(0.0, self._deadlines[0][0] - time.monotonic())

    def _expire(self) -> None:
        late = []
        with self._lock:
            while self._deadlines and self._deadlines[0][0] <= time.monotonic():
                late.append(heapq.heappop(self._deadlines)[2])
        for future in late:
            if future.finish(None, Timeout("the action has not ended within its timeout")):
                future.withdraw()

    # ---- calls that this process receives ----

    def _listen(self) -> None:
        """Post the receive of the next call, unless there are too many calls: further ones stay
        with their senders. `_listening` admits only one thread, and no recursion."""
        while True:
            with self._lock:
                if self._listening or len(self._calls) >= self._most_calls:
                    return
                self._listening = True
            try:
                head = self._anybody.irecv(None)
            except PscomError as error:
                logger.debug("%s accepts no more calls: %s", self._name, error)
                return
            if not head._finished:
                head._on_done(self._on_head)
                return
            self._take(head)
            self._listening = False

    def _on_head(self, head: Request) -> None:
        self._take(head)
        self._listening = False
        self._listen()

    def _take(self, head: Request) -> None:
        try:
            data = head.result()
        except PscomError as error:
            logger.debug("%s: %s", self._name, error)
            return
        assert head.status is not None
        links = self._links(head.status.source)
        if links is None:
            return
        number, cancels = head.status.tag >> 1, head.status.tag & 1
        if cancels:
            self._cancel(links, number)
        else:
            self._fetch(Call(links, number), data)

    def _cancel(self, links: Links, number: int) -> None:
        call = self._calls.get((id(links), number))
        if call is not None:
            call._cancelled.set()

    def _fetch(self, call: Call, data: bytearray) -> None:
        """Receive the chunks of a call, then begin it."""
        self._calls[id(call.links), call.number] = call
        objects = call.links.calls
        try:
            head = head_of(data)
            chunks = objects.fetch(head) if head else []
        except PscomError as error:
            self._fail(call, error)
            return

        def arrived() -> None:
            try:
                self._begin(call, objects.load(data, head, [it.result() for it in chunks]))
            except BaseException as error:
                self._fail(call, error)

        if chunks:
            when_all_ended(chunks, arrived)
        else:
            arrived()

    def _begin(self, call: Call, asked: object) -> None:
        if not (isinstance(asked, tuple) and len(asked) == 3 and isinstance(asked[1], tuple)):
            raise ProtocolError("an object that is not a call of an action")
        target, args, kwargs = asked
        found = self.resolve(target)
        call.name = found.name
        call.resolve = self.resolve
        work = partial(self._run, call, partial(found.function, *args, **kwargs))
        if found.inline:
            work()
        else:
            self._threads.put(work)

    def resolve(self, target: object) -> Registered:
        """Return the action for `target`, a name or a function.

        Raises `Unsupported` if the target may not be called, and `ProtocolError` if it is neither.
        """
        if isinstance(target, str):
            found = find(target)
            if found is None:
                raise Unsupported(f"no action {target!r} is registered here")
            return found
        if not callable(target):
            raise ProtocolError("the target of a call is neither a name nor a function")
        found = registered(target)
        if found is None and not self._any_function:
            raise Unsupported(
                f"{target!r} is no action here: register it with @pscompy.action, or set"
                " PSP_PARCEL_ACTIONS=any"
            )
        return found or Registered(target, _named(target), False)

    # ---- running and answering ----

    def _run(self, call: Call, function: Callable[[], object]) -> None:
        """Run the function of a call and answer with its result or exception."""
        try:
            if call.cancelled:
                raise Cancelled("the action was cancelled before it began")
            value = run_as(call, function)
        except BaseException as error:
            self._fail(call, error)
        else:
            self._answer(call, True, value)

    def _fail(self, call: Call, error: BaseException) -> None:
        self._answer(call, False, take_apart(error, call.links.answers))

    def _answer(self, call: Call, good: bool, value: object) -> None:
        self._calls.pop((id(call.links), call.number), None)
        answers = call.links.answers
        try:
            packed = answers.take_apart((good, value))
        except Exception as error:
            made = ParcelError(f"the result of {call.name} cannot be sent: {describe(error)}")
            packed = answers.take_apart((False, take_apart(made, answers)))
        try:
            answers.begin(packed, call.number)
        except PscomError as error:
            logger.debug("the answer of %s cannot be sent: %s", call.name, error)
        self._listen()


def _call_on_sent(on_sent: Callable[[], object], _: Request) -> None:
    on_sent()


def _named(function: Callable[..., object]) -> str:
    try:
        return name_of(function)
    except AttributeError:
        return type(function).__name__


@action(name="pscompy:map")
def call_many(target: object, items: list[tuple[Any, ...]]) -> list[Any]:
    """The action that runs one chunk of `Executor.map`: calls `target(*args)` for each item.

    Raises `Cancelled` between two items if the call was cancelled.
    """
    call = current_action()
    assert isinstance(call, Call)
    function = call.resolve(target).function
    results = []
    for args in items:
        if call.cancelled:
            raise Cancelled("the action was cancelled")
        results.append(function(*args))
    return results
