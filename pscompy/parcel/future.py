"""Futures: the results of actions on other processes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures._base import CANCELLED, FINISHED, PENDING
from typing import TYPE_CHECKING, Any

from pscompy.api.c.guard import condition, guard
from pscompy.api.timeouts import as_float
from pscompy.errors import PscomError, Timeout

if TYPE_CHECKING:
    from pscompy.api.c import _binding
    from pscompy.api.request import Request


class Future(concurrent.futures.Future):  # type: ignore[type-arg]
    """The result of an action: a `concurrent.futures.Future` that can also be awaited.

    Its exception is the exception of the action, with the remote traceback as its cause. It is
    `RemoteError` if that exception cannot be restored here, `PeerLost` or `Closed` if the
    connection has ended, and `Timeout` if the action took longer than `with_options` allows.
    """

    def __init__(self, withdraw: Callable[[Future], object], worker: _binding.Worker) -> None:
        """`withdraw(future)` is called when the result is not wanted any more. A thread that waits
        for the result drives the progress of `worker` meanwhile."""
        # The attributes of the base class, whose constructor would make a Condition at once.
        self._state = PENDING
        self._result: Any = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._made: threading.Condition | None = None
        self._withdraw = withdraw
        self._worker = worker
        # completes when the future has ended; made for the first thread that waits
        self._ended: Request | None = None

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """The Condition of the base class. It is made when the base class first asks for it,
        because making it takes longer than a short task, and a short task often ends before."""
        with guard:
            if self._made is None:
                self._made = condition(guard)
            return self._made

    def result(self, timeout: float | None = None) -> Any:
        if self._state != FINISHED:
            timeout = self._wait(timeout)
        if self._state == FINISHED and self._exception is None:
            return self._result
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(timeout if self._state == FINISHED else self._wait(timeout))

    def _wait(self, timeout: float | None) -> float | None:
        """Wait up to `timeout` seconds for the end of the future. Returns what is left of them."""
        timeout = as_float(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        with contextlib.suppress(PscomError):  # if the session has ended, the future ends soon
            made = self._worker.event()
            with guard:
                ended = self._ended = self._ended or made
            if self._state != PENDING:
                ended._complete(None)
            with contextlib.suppress(Timeout):
                ended.wait(None if timeout is None else max(0.0, timeout))
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _invoke_callbacks(self) -> None:
        super()._invoke_callbacks()  # type: ignore[misc]
        if self._ended is not None:
            self._ended._complete(None)

    def cancel(self) -> bool:
        """Give up the result. Returns False if the action has ended already.

        The peer drops an action that has not begun; a running action sees
        `current_action().cancelled`.
        """
        if self._state == FINISHED or not super().cancel():
            return False
        with guard:
            if self._state != CANCELLED:  # another thread has cancelled the future
                return True
            self.set_running_or_notify_cancel()
        self.withdraw()
        return True

    def withdraw(self) -> None:
        """Notify the peer that the result is not wanted any more."""
        self._withdraw(self)

    def finish(self, value: object, error: BaseException | None) -> bool:
        """Complete the future with `value`, or with `error` unless that is None.

        Returns False if the future has ended already.
        """
        with guard:
            if self._made is None and self._state == PENDING:  # no callback or waiter in the base
                self._result, self._exception, self._state = value, error, FINISHED
                if self._ended is not None:
                    self._ended._complete(None)
                return True
        try:
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)
        except concurrent.futures.InvalidStateError:
            return False
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio  # imported late: its import takes 20 ms, and few programs need it

        return asyncio.wrap_future(self).__await__()
