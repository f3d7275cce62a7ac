"""Futures: what actions on other processes give."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Generator
from typing import Any


class Future(concurrent.futures.Future):  # type: ignore[type-arg]
    """The result of an action. A `concurrent.futures.Future` that can be awaited, too.

    Its exception is that of the action, with the traceback there as its cause; `RemoteError` if
    that exception cannot be had here, `PeerLost` or `Closed` if the peer is gone, `Timeout` if the
    time of `with_options` is over.
    """

    def __init__(self, withdraw: Callable[[Future], object]) -> None:
        """`withdraw` is told when nobody wants the result any more."""
        super().__init__()
        self._withdraw = withdraw

    def cancel(self) -> bool:
        """Do without it: True unless it has ended. What has not begun there is dropped; what runs
        sees `current_action().cancelled`."""
        if self.cancelled():
            return True
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()
        self.withdraw()
        return True

    def withdraw(self) -> None:
        """Tell the peer that nobody wants the result any more."""
        self._withdraw(self)

    def finish(self, value: object, error: BaseException | None) -> bool:
        """End it with one of the two. False: it has ended already."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)
            return True
        return False

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio  # here: 20 ms that a program without it does not pay

        return asyncio.wrap_future(self).__await__()
