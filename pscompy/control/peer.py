"""What the control plane knows of one connection: a small record until its first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pscompy.control.explain import Explanation
from pscompy.control.handshake.frames import Identity
from pscompy.control.handshake.states import PHASE, Phase, PhaseEvent, step
from pscompy.errors import PscomError

if TYPE_CHECKING:
    from pscompy.control.attempt import Attempt
    from pscompy.control.negotiation import Negotiation


NOT_CONNECTED = Explanation()


class Record:
    """One connection's way from lazy to closed.

    Everything but `id`, `handle`, `address`, `rank` and `name` is written by the control thread
    alone; other threads may read it.
    """

    __slots__ = (
        *("id", "handle", "address", "rank", "name", "resolve", "phase", "peer", "transport"),
        *("error", "report", "waiting", "link", "parked", "attempt", "__weakref__"),
    )

    def __init__(
        self,
        id: int,
        handle: Any,
        address: str | None = None,
        rank: int = -1,
        name: str = "",
        resolve: Callable[[], str] | None = None,
    ) -> None:
        self.id = id
        self.handle = handle  # psc_conn_t *
        self.address = address  # the peer's socket; None: not known (yet)
        self.rank = rank
        self.name = name  # of a World's peer, known beforehand; empty: a plain connection
        self.resolve = resolve  # gives the address
        self.phase = Phase.LAZY
        self.peer: Identity | None = None
        self.transport = ""  # "shm", "tcp", joined by "+"; empty while lazy
        self.error: PscomError | None = None  # why it ended, or could not be made
        self.report = NOT_CONNECTED
        # Told once, on the control thread, when the connection is up (None) or has failed.
        self.waiting: tuple[Callable[[PscomError | None], object], ...] = ()
        self.link: Negotiation | None = None  # the one that counts
        self.parked: Negotiation | None = None  # the peer's call, crossed
        self.attempt: Attempt | None = None

    def step(self, event: PhaseEvent) -> None:
        self.phase = step(PHASE, self.phase, event)

    @property
    def label(self) -> str:
        """The peer as messages name it."""
        if self.peer is not None:
            return str(self.peer)
        return self.name or self.address or "a peer"

    def tell(self, error: PscomError | None) -> None:
        waiting, self.waiting = self.waiting, ()
        for told in waiting:
            told(error)
