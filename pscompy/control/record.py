"""What the control plane knows of one connection: a small record until its first use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pscompy.control.explain import Explanation
from pscompy.control.frames import Identity
from pscompy.control.states import PHASE, Phase, PhaseEvent, step
from pscompy.errors import PscomError

if TYPE_CHECKING:
    from pscompy.control.negotiation import Negotiation
    from pscompy.control.ondemand import Attempt


@dataclass(eq=False)
class Record:
    """One connection's way from lazy to closed.

    Everything but `id`, `handle`, `address`, `rank` and `name` is written by the control thread
    alone; other threads may read it.
    """

    id: int
    handle: Any = field(repr=False)  # psc_conn_t *
    address: str | None = None  # the peer's socket; None: not known (yet)
    rank: int = -1
    name: str = ""  # of a World's peer, known beforehand; empty: a plain connection
    resolve: Callable[[], str] | None = field(default=None, repr=False)  # gives the address
    phase: Phase = Phase.LAZY
    peer: Identity | None = None
    transport: str = ""  # "shm", "tcp", joined by "+"; empty while lazy
    error: PscomError | None = None  # why it ended, or could not be made
    report: Explanation = field(default_factory=Explanation, repr=False)
    # Told once, on the control thread, when the connection is up (None) or has failed.
    waiting: list[Callable[[PscomError | None], object]] = field(default_factory=list, repr=False)
    link: Negotiation | None = field(default=None, repr=False)  # the one that counts
    parked: Negotiation | None = field(default=None, repr=False)  # the peer's call, crossed
    attempt: Attempt | None = field(default=None, repr=False)

    def step(self, event: PhaseEvent) -> None:
        self.phase = step(PHASE, self.phase, event)

    @property
    def label(self) -> str:
        """The peer as messages name it."""
        if self.peer is not None:
            return str(self.peer)
        return self.name or self.address or "a peer"

    def tell(self, error: PscomError | None) -> None:
        waiting, self.waiting = self.waiting, []
        for told in waiting:
            told(error)
