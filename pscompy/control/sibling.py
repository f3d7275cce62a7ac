"""SiblingThread: the part of a running control thread that serves one more worker of the session.

The workers of a session share its control thread. Each has a sibling, which forwards to the thread,
and whose call-backs end with the worker, while the thread goes on.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

from pscompy.control.event_loop import Callback, ControlThread, Timer, _nothing
from pscompy.errors import Closed


class SiblingThread(ControlThread):
    """Behaves as a `ControlThread`; `stop` ends only what was begun through the sibling."""

    def __init__(self, host: ControlThread) -> None:
        self.root = host.root
        self.spare = host.spare
        self._left = False  # True: no call-back is made any more
        self._fds: set[int] = set()
        self._own_pump: Callable[[], bool] | None = None

    # ---- called on any thread ----

    def start(self, begin: Callback = _nothing) -> None:
        """Call `begin` on the control thread, and raise its exception here.

        Raises `Closed` if the thread ends meanwhile.
        """
        outcome: list[BaseException | None] = []

        def guarded() -> None:
            try:
                begin()
            except BaseException as error:
                outcome.append(error)
            else:
                outcome.append(None)

        self.root.run(guarded)
        if not outcome:
            raise Closed("the session is closed")
        if outcome[0] is not None:
            raise outcome[0]

    def call(self, function: Callback, *args: Any) -> None:
        self.root.call(self._unless_left, function, *args)

    def run(self, function: Callback, *args: Any, seconds: float = math.inf) -> None:
        self.root.run(self._unless_left, function, *args, seconds=seconds)

    def stop(self, timeout: float) -> bool:
        left = threading.Event()
        self.root.call(self._leave)
        self.root.call(left.set)
        return left.wait(timeout)

    def abandon(self) -> None:
        """Does nothing: the owner of the control thread closes the thread's descriptors."""

    # ---- called on the control thread ----

    def register(self, fd: int, events: int, callback: Callable[[int], object]) -> None:
        self.root.register(fd, events, callback)
        self._fds.add(fd)

    def modify(self, fd: int, events: int, callback: Callable[[int], object]) -> None:
        self.root.modify(fd, events, callback)

    def unregister(self, fd: int) -> None:
        self._fds.discard(fd)
        self.root.unregister(fd)

    def later(self, seconds: float, function: Callback, *args: Any) -> Timer:
        return self.root.later(seconds, self._unless_left, function, *args)

    def add_pump(self, pump: Callable[[], bool]) -> None:
        self._own_pump = pump
        self.root.add_pump(pump)

    def _unless_left(self, function: Callback, *args: Any) -> None:
        if not self._left:
            function(*args)

    def _leave(self) -> None:
        self._left = True
        if self._own_pump is not None:
            self.root.remove_pump(self._own_pump)
        for fd in list(self._fds):
            self.unregister(fd)
