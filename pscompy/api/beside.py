"""Beside: the sessions that end with a session, because they share its control thread.

Each has a worker of its own. The counters of its session's `stats` are sums over all of them, which
do not fall when one is closed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pscompy.api.session import Session


class Beside:
    """The open sessions beside one, and what those that were closed have counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Session] = []
        self._closed: Counter[str] = Counter()

    def add(self, session: Session) -> None:
        with self._lock:
            self._open.append(session)

    def remove(self, session: Session) -> None:
        """The session was closed: keep its counters."""
        with self._lock:
            self._open.remove(session)
            self._closed.update(session._engine.totals())
            self._closed.update(session._beside._closed)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._open))

    def everyone(self) -> Iterator[Session]:
        """These sessions, and those beside each of them."""
        for session in self:
            yield session
            yield from session._beside.everyone()

    def stats(self) -> Counter[str]:
        """The sums of all sessions' counters, and of what the open ones hold."""
        with self._lock:
            counted = self._closed.copy()
            for session in self._open:
                counted.update(session._stats())
        return counted
