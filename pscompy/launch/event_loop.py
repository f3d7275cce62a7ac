"""A loop over descriptors: who is ready gets its callback called."""

from __future__ import annotations

import selectors
from collections.abc import Callable

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Loop:
    """poll(2), because it takes regular files too and calls them ready."""

    def __init__(self) -> None:
        self._selector = selectors.PollSelector()
        self._watched: dict[int, selectors.SelectorKey] = {}

    def watch(self, fd: int, callback: Callable[[], None], events: int = READ) -> None:
        """Call back whenever `fd` is ready; nothing changes if it is watched."""
        if fd not in self._watched:
            self._watched[fd] = self._selector.register(fd, events, callback)

    def unwatch(self, fd: int) -> None:
        if self._watched.pop(fd, None):
            self._selector.unregister(fd)

    def turn(self, timeout: float | None) -> None:
        """Wait for events, at most `timeout` seconds, and call back."""
        for key, _ in self._selector.select(timeout):
            if self._watched.get(key.fd) is key:  # no earlier callback ended it
                key.data()

    def close(self) -> None:
        self._selector.close()
