"""A loop over descriptors that calls the callback of each descriptor that is ready."""

from __future__ import annotations

import selectors
from collections.abc import Callable

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Loop:
    """A loop over poll(2), which, unlike epoll, accepts regular files and reports them as ready."""

    def __init__(self) -> None:
        self._selector = selectors.PollSelector()
        self._watched: dict[int, selectors.SelectorKey] = {}

    def watch(self, fd: int, callback: Callable[[], object], events: int = READ) -> None:
        """Call callback() whenever `fd` is ready. Does nothing if `fd` is watched already."""
        if fd not in self._watched:
            self._watched[fd] = self._selector.register(fd, events, callback)

    def unwatch(self, fd: int) -> None:
        if self._watched.pop(fd, None):
            self._selector.unregister(fd)

    def turn(self, timeout: float | None) -> None:
        """Wait for events, at most `timeout` seconds, and call their callbacks."""
        for key, _ in self._selector.select(timeout):
            # an earlier callback may have unwatched the descriptor
            if self._watched.get(key.fd) is key:
                key.data()

    def close(self) -> None:
        self._selector.close()
