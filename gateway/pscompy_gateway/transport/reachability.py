"""What a process knows of others behind gateways: which gateways do not lead to one, and since
when none does. No I/O.
"""

from __future__ import annotations

# Seconds without any way before a node counts as lost.
GRACE = 2.5  # gateways may start again
ARRIVAL = 20.0  # a node may be on its way to those that are there


class Reach:
    """The ways to one node."""

    def __init__(self) -> None:
        self._missing: set[int] = set()  # gateways that have said that they do not know it
        self._left = False  # a gateway has seen it go
        self._since: float | None = None  # when the last way was gone

    def missing(self, gateway: int, left: bool = False) -> bool:
        """A gateway does not know it: it has seen it leave, or has not seen it yet, if it has just
        started. True: that is new."""
        new = gateway not in self._missing
        self._missing.add(gateway)
        self._left |= left
        return new

    def seen(self, gateway: int) -> None:
        self._missing.discard(gateway)
        self._left = False

    def doubtful(self, live: set[int]) -> set[int]:
        """The gateways to ask again."""
        return self._missing & live

    def lost(self, live: set[int], steady: bool, now: float) -> bool:
        """Whether the node is gone. `live`: the gateways that are there; `steady`: they have been
        for a while, so what they say is all there is to know."""
        if live - self._missing:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if steady and live and self._left:
            return True
        return now - self._since >= (ARRIVAL if live else GRACE)
