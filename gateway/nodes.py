"""What a process knows of others behind gateways: which gateways do not lead to one, and since
when none does. No I/O.
"""

from __future__ import annotations

GRACE = 2.5  # seconds without any way before a node counts as lost: gateways may start again


class Reach:
    """The ways to one node."""

    def __init__(self) -> None:
        self._missing: set[int] = set()  # gateways that have said that they do not know it
        self._since: float | None = None  # when the last way was gone

    def missing(self, gateway: int) -> None:
        self._missing.add(gateway)

    def seen(self, gateway: int) -> None:
        self._missing.discard(gateway)

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
        return (steady and bool(live)) or now - self._since >= GRACE
