"""The ways of a process to one node: which gateways do not lead to the node, and since when no
gateway does. No I/O.
"""

from __future__ import annotations

GRACE = 2.5  # seconds without any connected gateway, which may restart, until nodes count as lost
# seconds until a node that no connected gateway knows counts as lost, because it may still be
# connecting
ARRIVAL = 20.0


class Reach:
    """The ways of this process to one node, through gateways. Gateways are given by their index in
    PSP_GW_SERVER."""

    def __init__(self) -> None:
        # gateways that have reported that they do not know the node
        self._missing: set[int] = set()
        self._left = False  # a gateway has reported that the node left it
        self._since: float | None = None  # monotonic time since which no gateway leads to the node

    def missing(self, gateway: int, left: bool = False) -> bool:
        """Note that a gateway does not know the node, which has left the gateway (`left`), or has
        not connected to it yet. Returns True if this was not noted before."""
        new = gateway not in self._missing
        self._missing.add(gateway)
        self._left |= left
        return new

    def seen(self, gateway: int) -> None:
        self._missing.discard(gateway)
        self._left = False

    def doubtful(self, live: set[int]) -> set[int]:
        """Return the connected gateways that did not know the node; they should be asked again."""
        return self._missing & live

    def lost(self, live: set[int], steady: bool, now: float) -> bool:
        """Whether the node is lost at the monotonic time `now`.

        `live` are the connected gateways. `steady` means that this set has not changed for a while,
        so that the report of a gateway that the node has left is final.
        """
        if live - self._missing:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if steady and live and self._left:
            return True
        return now - self._since >= (ARRIVAL if live else GRACE)
