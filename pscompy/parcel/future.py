"""Futures: the results of actions on other processes."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Generator
from typing import Any


class Future(concurrent.futures.Future):  # type: ignore[type-arg]
    """The result of an action: a `concurrent.futures.Future` that can also be awaited.

    Its exception is the exception of the action, with the remote traceback as its cause. It is
    `RemoteError` if that exception cannot be restored here, `PeerLost` or `Closed` if the
    connection has ended, and `Timeout` if the action took longer than `with_options` allows.
    """

    def __init__(self, withdraw: Callable[[Future], object]) -> None:
        """`withdraw(future)` is called when the result is not wanted any more."""
        super().__init__()
        self._withdraw = withdraw

    def cancel(self) -> bool:
        """Give up the result. Returns False if the action has ended already.

        The peer drops an action that has not begun; a running action sees
        `current_action().cancelled`.
        """
        if self.cancelled():
            return True
        if not super().cancel():
            return False
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
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)
            return True
        return False

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio  # imported late: its import takes 20 ms, and few programs need it

        return asyncio.wrap_future(self).__await__()
