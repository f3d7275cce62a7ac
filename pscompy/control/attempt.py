"""Our own tries to reach a peer: what is under way, and what was found so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pscompy.control.dialer import Backoff, Detoured, Dialer, Target, Targets
from pscompy.control.event_loop import Timer
from pscompy.control.handshake.frames import Kind
from pscompy.errors import PscomError

if TYPE_CHECKING:
    from pscompy.control.negotiation import Negotiation

Refusal = tuple[PscomError, bool]
"""Why nothing came of a link, and whether another attempt may help."""


class Attempt:
    """Our own tries to reach a peer, from the first use to up or given up.

    In a round all places of the address are tried. Each one that connects is a rival until the
    first of them says something: that is the link, unless somebody else turns out to be there;
    then the round goes on with the places that are left.
    """

    def __init__(self, kind: Kind, backoff: Backoff) -> None:
        self.kind = kind
        self.backoff = backoff
        self.stalled = 0
        self.dialer: Dialer | Detoured | None = None
        self.timer: Timer | None = None
        self.rivals: dict[Negotiation, Target | None] = {}  # connected, and silent so far
        self.rest: Targets = []  # of this round
        self.refused: Refusal | None = None  # the first of this round

    @property
    def under_way(self) -> bool:
        return self.dialer is not None or bool(self.rivals)

    def settle(self, winner: Negotiation | None = None) -> None:
        """Nobody else is tried for now."""
        rest = self.dialer.cancel() if self.dialer is not None else []
        self.dialer = None
        rivals, self.rivals = self.rivals, {}
        for rival, target in rivals.items():
            if rival is not winner:
                rival.break_off()
                rest += [target] if target is not None else []
        self.rest = rest

    def cancel(self) -> None:
        self.settle()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
