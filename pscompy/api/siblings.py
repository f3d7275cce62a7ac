"""Siblings: the sessions of a World's endpoints, which end with the World's session, because they
share its control thread.

Each of them has a worker of its own. The `stats` of the World's session are sums over the counters
of all these sessions; they do not fall when one of the sessions is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from pscompy.api.c.guard import guard
from pscompy.control.worker import Worker

LONGEST = ("lock_longest_ns",)  # counters that are longest times, not sums


class Member(Protocol):
    """The attributes of a Session that Siblings uses."""

    _core: Worker
    _siblings: Siblings[Any]

    def _stats(self) -> Mapping[str, int]: ...


M = TypeVar("M", bound=Member)


class Siblings(Generic[M]):
    """The open sessions beside one session (those of its endpoints), and the counters of sessions
    beside it that were closed."""

    __slots__ = ("_closed", "_open")

    def __init__(self) -> None:
        self._open: list[M] = []
        self._closed: Counter[str] = Counter()

    def add(self, session: M) -> None:
        with guard:
            self._open.append(session)

    def remove(self, session: M) -> None:
        """Remove a session that was closed, and keep its counters."""
        with guard:
            self._open.remove(session)
            _add(self._closed, session._core.totals())
            _add(self._closed, session._siblings._closed)

    def __iter__(self) -> Iterator[M]:
        return iter(list(self._open))

    def everyone(self) -> Iterator[M]:
        """Yield the sessions of this object, and those beside each of them."""
        for session in self:
            yield session
            yield from session._siblings.everyone()

    def stats(self, own: Mapping[str, int]) -> Counter[str]:
        """Return the sums of the counters of all sessions; `own` are the counters of the session
        that owns this object."""
        with guard:
            counted = self._closed.copy()
            _add(counted, own)
            for session in self:
                _add(counted, session._stats())
        return counted


def _add(counted: Counter[str], more: Mapping[str, int]) -> None:
    """Add the counters `more` to `counted`; for those in LONGEST keep the higher value."""
    longest = {name: max(counted[name], more.get(name, 0)) for name in LONGEST}
    counted.update(more)  # unlike that of a dict, this adds the values: `counted` is a Counter
    for name, value in longest.items():
        counted[name] = value
