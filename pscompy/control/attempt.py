"""This process's own attempts to reach one peer: the precons that are being made, and the locations
that were tried."""

from __future__ import annotations

from typing import Any

from pscompy.control.dialer import Backoff, Detoured, Dialer, Target, Targets
from pscompy.control.event_loop import Timer
from pscompy.control.handshake.frames import Kind
from pscompy.control.negotiation import Negotiation
from pscompy.errors import PscomError

Refusal = tuple[PscomError, bool]
"""The error by which a precon failed, and whether another attempt may succeed."""


class Attempt:
    """All attempts to reach a peer, from the connection's first use until it is up or has failed.

    A round tries all locations of the peer's address. Each precon that connects is a rival until
    the peer answers on one of them: that one is used. If another process answers there, the round
    goes on with the locations that are left.
    """

    def __init__(self, kind: Kind, backoff: Backoff) -> None:
        self.kind = kind
        self.backoff = backoff
        self.stalled = 0  # rounds in which a location did not answer at all
        self.dialer: Dialer | Detoured | None = None
        self.timer: Timer | None = None  # timer of the next round
        # precons that are connected, and on which the peer has not answered yet
        self.rivals: dict[Negotiation[Any], Target | None] = {}
        # locations to try next if the process that answered is not the peer
        self.rest: Targets = []
        self.refused: Refusal | None = None  # the first refusal of this round
        self.closed: list[str] = []  # why detours of the address cannot be taken, in this round
        self.last_error: PscomError | None = None  # why the round before failed

    @property
    def dialing(self) -> bool:
        """Whether a precon is being made now; False in the pause before the next round."""
        return self.dialer is not None or bool(self.rivals)

    def settle(self, winner: Negotiation[Any] | None = None) -> None:
        """End the round: keep the winner's precon, and break off all others."""
        rest = self.dialer.cancel() if self.dialer is not None else []
        self.dialer = None
        rivals, self.rivals = self.rivals, {}
        for rival, target in rivals.items():
            if rival is not winner:
                rival.break_off()
                rest += [target] if target is not None else []
        self.rest = rest

    def cancel(self) -> None:
        """End the round, and begin no other."""
        self.settle()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
