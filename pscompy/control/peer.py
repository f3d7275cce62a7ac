"""The control plane's record of one connection; nothing else is kept until its first use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pscompy.control.conn import Conn
from pscompy.control.event_loop import ControlThread
from pscompy.control.explain import Explanation
from pscompy.control.handshake.tables import step
from pscompy.control.phases import PHASE, Phase, PhaseEvent
from pscompy.errors import PscomError

if TYPE_CHECKING:
    from pscompy.control.dialer import Attempt
    from pscompy.control.handshake.identity import Identity
    from pscompy.control.negotiation import Negotiation

logger = logging.getLogger(__name__)

NOT_CONNECTED = Explanation()

FindPeer = Callable[["Identity"], "Record | None"]
"""Returns the record of a World's peer, or None if it is no peer."""

OnSettled = Callable[["PscomError | None"], object]
"""Called once a connection is up, with None, or has failed, with the reason."""


class PeerPrecon(Protocol):
    """Carries notices to the peer's control thread, beside the lanes: a negotiation's precon, or
    the datagrams of a node-local connect."""

    def announce_close(self) -> None:
        """Let the peer know that this side's last message is in flight on the lanes."""

    def leave(self) -> None:
        """End the precon on purpose."""

    def break_off(self) -> None:
        """End the precon as if this process had died."""

    def close_early(self, reason: str) -> None:
        """End the precon before the connection is up, because it was closed here."""

    def lose(self, lanes: dict[int, str]) -> None:
        """Note that the connection has lost these lanes, for these reasons."""


class Record:
    """The state of one connection from lazy to closed.

    The control thread alone writes it, except `address`, `rank` and `name`; other
    threads may read it.
    """

    __slots__ = (
        *(
            "id",
            "_handle",
            "_call",
            "address",
            "rank",
            "name",
            "resolve",
            "phase",
            "peer",
        ),
        *("_error", "report", "waiting", "precon", "parked", "attempt", "__weakref__"),
    )

    def __init__(
        self,
        conn: Conn,
        address: str | None = None,
        rank: int = -1,
        name: str = "",
        resolve: Callable[[], str] | None = None,
    ) -> None:
        # the parts of a Conn, which is made when it is asked for: a World declares many connections
        self.id, self._handle, self._call = conn.id, conn.handle, conn._call
        self.address = address  # address of the peer's socket; None if it is not known yet
        self.rank = rank
        self.name = name  # name of a World's peer, known beforehand; "" for other connections
        self.resolve = resolve  # returns the peer's address; called at the connection's first use
        self.phase = Phase.LAZY
        self.peer: Identity | None = None
        self._error: PscomError | None = None
        self.report = NOT_CONNECTED
        self.waiting: tuple[OnSettled, ...] = ()
        self.precon: PeerPrecon | None = None  # the precon that is in use
        self.parked: Negotiation[Record] | None = None  # the peer's precon, kept in reserve
        self.attempt: Attempt | None = None

    @property
    def conn(self) -> Conn:
        """The core's connection."""
        return Conn(self._call, self.id, self._handle)

    @property
    def error(self) -> PscomError | None:
        """Why the connection ended, or failed to connect. The core knows it, too."""
        return self._error

    @error.setter
    def error(self, error: PscomError | None) -> None:
        if error is not self._error:
            self._error = error
            self.conn.set_error(error)

    def step(self, event: PhaseEvent) -> None:
        """Change the phase as the table PHASE says."""
        self.phase = step(PHASE, self.phase, event)

    def find_address(self) -> None:
        """Ask for the peer's address. If no address is found, dialing the peer fails later."""
        try:
            self.address = self.resolve() if self.resolve is not None else None
        except PscomError as error:
            logger.warning("the address of %s is not known: %s", self.label, error)

    def when_address_is_known(self, thread: ControlThread, then: Callable[[], object]) -> None:
        """Call then() on the control thread, which is the calling one, once the peer's address is
        known or was not found. A launcher may take a minute to answer, and the control thread must
        not wait for it, so another thread asks it."""
        if self.address is not None or self.resolve is None:
            then()
            return

        def find_address() -> None:
            self.find_address()
            thread.call(then)

        asking = threading.Thread(target=find_address, name="pscompy-resolve", daemon=True)
        try:
            asking.start()
        except RuntimeError:  # no thread can be started
            find_address()

    @property
    def label(self) -> str:
        """The peer as errors and log lines name it."""
        if self.peer is not None:
            return str(self.peer)
        if self.rank >= 0:
            return f"rank {self.rank}"
        return self.name or self.address or "a peer"

    def settle(self, error: PscomError | None) -> None:
        """Notify all that wait for the connection: it is up (None), or has failed."""
        waiting, self.waiting = self.waiting, ()
        for on_settled in waiting:
            on_settled(error)
