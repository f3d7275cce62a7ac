"""The actions of one session: runs the calls of peers, and completes futures with their answers.

Calls are objects in one context (like that of an MPI communicator), answers in another. Both carry
the number of the call in their tag. So a call whose arguments cannot be restored is answered too,
and the core matches an answer with the receive of its future. Every call is answered exactly once,
also if it was cancelled. The driver's thread makes progress while the program computes; the
callback of a message runs in whichever thread makes progress.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from pscompy.api.c import _binding
from pscompy.api.c.guard import Lock, require_waiting, when_outside
from pscompy.api.request import Request
from pscompy.config.parsers import AUTO
from pscompy.errors import (
    ProtocolError,
    PscomError,
    Timeout,
    Unsupported,
)
from pscompy.parcel.action import (
    Registered,
    find,
    named,
    nearest,
    registered,
)
from pscompy.parcel.call_group import DELAY, Batch, Called, CallGroup, Result, packed_answer
from pscompy.parcel.calls import ActionPeer, Call, Options
from pscompy.parcel.doubts import Doubts, Presence, explained
from pscompy.parcel.driver import driver_of
from pscompy.parcel.future import Future
from pscompy.parcel.object_requests import head_of, results, when_all_ended
from pscompy.parcel.objects import Objects, receive
from pscompy.parcel.remote_errors import put_together, take_apart
from pscompy.parcel.thread_pool import Threads, processors

if TYPE_CHECKING:
    from pscompy.parcel.archive import Archive

# mask of a call's number; its tag has one bit more, which is set to cancel the call
NUMBERS = 0x3FFFFFFF
BACKLOG = 64  # calls that are accepted beyond those that can run at once

logger = logging.getLogger(__name__)


class Service:
    """Runs the calls of peers and sends calls to peers.

    `anybody` receives from all peers in the context of calls. `peer(source)` returns the ActionPeer
    of the peer that a Status names, or None if that peer has gone. `presence` knows which peers
    accept calls; None if that is not known.
    """

    def __init__(
        self,
        worker: _binding.Worker,
        anybody: _binding.Communicator,
        peer: Callable[[Any], ActionPeer | None],
        config: Mapping[str, Any],
        name: str,
        presence: Presence | None = None,
    ) -> None:
        self.worker = worker
        self._doubts = Doubts(presence)
        self._anybody = anybody
        self._action_peer = peer
        self._any_function = config["PARCEL_ACTIONS"] == "any"
        self._name = f"pscompy actions {name}"
        most = config["PARCEL_THREADS"]
        self._threads = Threads(processors() if most == AUTO else most, self._name)
        self._most_calls = self._threads.most + BACKLOG
        self._starting = Lock()
        self._begun = False
        # The receive of the next call. It is kept here, because a request that is in flight and
        # that nothing refers to keeps itself alive, and with it the session.
        self._head: Request | None = None
        self._listening = threading.Lock()  # held while the receive of the next call is posted
        # calls of peers that are not answered yet, by id() of the peer's ActionPeer and the call's
        # number
        self._calls: dict[tuple[int, int], Call] = {}
        self._asked: set[Future] = set()  # futures of calls that were sent and are not answered yet

    @property
    def threads(self) -> int:
        """The number of actions that can run at once."""
        return self._threads.most

    def start(self) -> None:
        """Begin to accept calls. May be called repeatedly."""
        if self._begun:
            return
        with self._starting:
            if self._begun:
                return
            self._alarms = driver_of(self.worker, self._name, self._threads.end).alarms
            self._doubts.alarms = self._alarms
            self._begun = True
        self._doubts.announce()
        self._listen()

    # ---- calls that this process sends ----

    def submit(
        self,
        peer: ActionPeer,
        function: Callable[..., object],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: Options,
    ) -> Future:
        """Call a function on `peer`.

        Raises the exceptions of the serialiser, and `PscomError` if the call cannot be sent.
        """
        if not self._begun:
            when_outside(self.start)
        target = _target(function, peer.calls)
        packed = peer.calls.take_apart((target, args, kwargs))
        number = next(peer.numbers) & NUMBERS
        future = self._ask(peer, number)
        answer = self._await_answer(peer, number, future)
        try:
            sent = peer.calls.begin(packed, number << 1)
        except PscomError:
            answer.cancel()
            raise
        if options.on_sent is not None:
            sent._on_done(partial(_call_on_sent, options.on_sent))
        if options.timeout is not None:
            self._doubts.limit(options.timeout, peer, target, future)
        self._doubts.expect(peer, target, future)
        return future

    def call(
        self,
        peer: ActionPeer,
        function: Callable[..., object],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call a function on `peer`, and return its result. Raises as `submit` does,
        and what the function has raised."""
        self.start()
        target = _target(function, peer.calls)
        packed = peer.calls.take_apart((target, args, kwargs))
        number = next(peer.numbers) & NUMBERS
        future = self._ask(peer, number)  # makes wait_for_answers() wait for this call
        self._doubts.expect(peer, target, future)
        try:
            peer.calls.begin(packed, number << 1)
            data = peer.answers.heads.recv(None, number)
        except Exception as error:
            self._end(future, None, explained(error, peer))
            raise
        except BaseException:  # for example KeyboardInterrupt; the answer still needs a receive
            self._await_answer(peer, number, future)
            raise
        peer.answered = True
        try:
            good, value = peer.answers.finish(data)
        finally:
            self._end(future, None, None)
        if good:
            return value
        raise put_together(value, peer.answers)

    def submit_many(
        self,
        peer: ActionPeer,
        calls: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]],
        report: Callable[[list[Result], bool], object],
        refused: Callable[[BaseException], object],
    ) -> int:
        """Call several functions on `peer` by one message. The results go to `report`
        or `refused` (see `Batch` in call_group.py). Returns the number for `withdraw`. Raises as
        `submit` does."""
        self.start()
        packed = peer.calls.take_apart(
            [(_target(it, peer.calls), args, kwargs) for it, args, kwargs in calls]
        )
        number = next(peer.numbers) & NUMBERS
        batch = Batch(len(calls), report, refused)
        answer = self._await_part(peer, number, batch)
        try:
            peer.calls.begin(packed, number << 1)
        except PscomError:
            batch.drop()
            answer.cancel()
            raise
        self._doubts.expect(peer, _target(calls[0][0], peer.calls), batch)
        return number

    def withdraw(self, peer: ActionPeer, number: int, index: int) -> None:
        """Cancel one of the calls that `submit_many` has sent."""
        self._send_withdrawal(peer, number, index.to_bytes(4, "little"))

    def serve_until(self, request: Request) -> None:
        """Wait for a request. In the main thread, run actions of peers meanwhile, as one of the
        threads that run actions."""
        if threading.current_thread() is threading.main_thread():
            self._threads.help_until(request, self.worker.event)
        request.wait()

    def wait_for_answers(self, timeout: float | None = None) -> None:
        """Wait up to `timeout` seconds until all calls that were sent have ended. Raises
        `Timeout`."""
        import concurrent.futures

        require_waiting()
        if concurrent.futures.wait(self._asked.copy(), timeout).not_done:
            raise Timeout("not all actions have ended")

    def _ask(self, peer: ActionPeer, number: int) -> Future:
        """Make the future of a call that is being sent."""
        future = Future(partial(self._withdraw, peer, number), self.worker)
        self._asked.add(future)
        return future

    def _await_answer(self, peer: ActionPeer, number: int, future: Future) -> Request:
        answer = self._answer_of(peer, number)
        answer._on_done(partial(self._answered, peer, future))
        return answer

    def _answered(self, peer: ActionPeer, future: Future, answer: Request) -> None:
        try:
            good, value = answer.result()
        except BaseException as error:
            self._end(future, None, explained(error, peer))
            return
        peer.answered = True
        if good:
            self._end(future, value, None)
        else:
            self._end(future, None, put_together(value, peer.answers))

    def _end(self, future: Future, value: object, error: BaseException | None) -> None:
        self._asked.discard(future)
        future.finish(value, error)

    def _answer_of(self, peer: ActionPeer, number: int) -> Request:
        heads = peer.answers.heads
        return receive(self.worker, heads, heads.irecv(None, number), lambda _: peer.answers)

    def _await_part(self, peer: ActionPeer, number: int, batch: Batch) -> Request:
        answer = self._answer_of(peer, number)
        answer._on_done(partial(self._part_came, peer, number, batch))
        return answer

    def _part_came(self, peer: ActionPeer, number: int, batch: Batch, answer: Request) -> None:
        try:
            batch.take(answer.result(), peer.answers)
            peer.answered = True
            if not batch.done():
                self._await_part(peer, number, batch)
        except BaseException as error:
            batch.fail(explained(error, peer))

    def _withdraw(self, peer: ActionPeer, number: int, future: Future) -> None:
        self._send_withdrawal(peer, number, b"")

    def _send_withdrawal(self, peer: ActionPeer, number: int, index: bytes) -> None:
        try:
            peer.calls.heads.isend(index, number << 1 | 1)
        except PscomError as error:
            logger.debug("cannot cancel an action: %s", error)

    # ---- calls that this process receives ----

    def _listen(self) -> None:
        """Post the receive of the next call, unless as many calls as allowed are unanswered.
        `_listening` admits one thread at a time, and keeps this method from recursion."""
        while len(self._calls) < self._most_calls and self._listening.acquire(blocking=False):
            try:
                head = self._anybody.irecv(None)
            except PscomError as error:
                logger.debug("%s accepts no more calls: %s", self._name, error)
                return
            if not head._finished:
                self._head = head
                head._on_done(self._on_head)
                return
            self._take(head)
            self._listening.release()

    def _on_head(self, head: Request) -> None:
        self._take(head)
        self._listening.release()
        self._listen()

    def _take(self, head: Request) -> None:
        try:
            data = head.result()
        except PscomError as error:
            logger.debug("%s: %s", self._name, error)
            return
        assert head.status is not None
        peer = self._action_peer(head.status.source)
        if peer is None:
            return
        number, cancels = head.status.tag >> 1, head.status.tag & 1
        if not cancels:
            self._fetch(Call(peer, number, self.resolve), data)
        elif call := self._calls.get((id(peer), number)):
            call.withdraw(data)

    def _fetch(self, call: Call, data: bytearray) -> None:
        """Receive the chunks (long buffers) of a call's arguments, then begin the call."""
        self._calls[id(call.peer), call.number] = call
        objects = call.peer.calls
        try:
            head = head_of(data)
            chunks = objects.fetch(head) if head else []
        except Exception as error:  # for example MemoryError
            self._fail(call, error)
            return

        def arrived() -> None:
            try:
                self._begin(call, objects.load(data, head, results(chunks)))
            except BaseException as error:
                self._fail(call, error)

        if chunks:
            when_all_ended(chunks, arrived)
        else:
            arrived()

    def _begin(self, call: Call, asked: object) -> None:
        if isinstance(asked, list):
            self._begin_group(call, asked)
            return
        found = call.prepare(asked)

        def work() -> None:
            self._answer(call, *call.outcome(found, asked, call.peer.answers))

        if found.inline:
            work()
        else:
            self._threads.put(work)

    def _begin_group(self, call: Call, asked: list[Any]) -> None:
        call.group = CallGroup(
            call.peer.answers,
            partial(self._send_answer, call),
            partial(self._alarms.soon, DELAY),
            partial(self._forget, call),
        )
        make = partial(Called, call.source, self.resolve)
        call.group.begin(asked, make, self._threads.put, self._threads.most)

    def resolve(self, target: object) -> Registered:
        """Return the action for `target`, a name or a function.

        Raises `Unsupported` if the target may not be called, and `ProtocolError` if it is neither.
        """
        if isinstance(target, str):
            found = find(target)
            if found is None:
                near = " or ".join(map(repr, nearest(target)))
                near = near and f": did you mean {near}?"
                raise Unsupported(f"no action {target!r} is registered here{near}")
            return found
        if not callable(target):
            raise ProtocolError("the target of a call is neither a name nor a function")
        found = registered(target)
        if found is None and not self._any_function:
            raise Unsupported(
                f"{target!r} is no action here: register it with @pscompy.action, or set"
                " PSP_PARCEL_ACTIONS=any"
            )
        return found or Registered(target, named(target), False)

    # ---- answering ----

    def _fail(self, call: Call, error: BaseException) -> None:
        """Answer with an exception that kept the call from beginning."""
        self._answer(call, False, take_apart(error, call.peer.answers))

    def _answer(self, call: Call, good: bool, value: object) -> None:
        self._calls.pop((id(call.peer), call.number), None)
        self._send_answer(call, packed_answer(call.peer.answers, call.name, good, value))
        self._listen()

    def _send_answer(self, call: Call, packed: bytes | Archive) -> None:
        try:
            call.peer.answers.begin(packed, call.number)
        except PscomError as error:
            logger.debug("the answer of %s cannot be sent: %s", call.name, error)

    def _forget(self, call: Call) -> None:
        """End a call whose answer has been sent."""
        self._calls.pop((id(call.peer), call.number), None)
        self._listen()


def _target(function: Callable[..., object], calls: Objects) -> object:
    """Return what is sent to name a function: the name of an action, or the function itself if it
    is no action. Raises `PicklingError` for a function that is written as its name only, if a peer
    cannot find it by that name."""
    known = registered(function)
    if known is not None:
        return known.name
    name = getattr(function, "__qualname__", "")
    if calls.names_functions and ("<lambda>" in name or "<locals>" in name):
        raise PicklingError(
            f"{name} has no name that a peer could find it by: make it an action at the top of a"
            " module (pscompy.action), or pip install 'pscompy[cloudpickle]' and set"
            " PSP_PARCEL_SERIALISER=cloudpickle and PSP_PARCEL_ACTIONS=any"
            + ("" if calls.pickles else ", without PSP_PARCEL_UNPICKLE=restricted")
        )
    return function


def _call_on_sent(on_sent: Callable[[], object], _: Request) -> None:
    on_sent()
