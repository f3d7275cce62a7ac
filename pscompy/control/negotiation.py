"""What happens on one precon link, from its greeting to its end as a guard.

A negotiation owns its link and its lanes. It decides nothing about other links: whether a link
is taken, crossed or tried again is for its `Host` (see ondemand.py) to say.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from pscompy.control.handshake.events import (
    Answered,
    Ended,
    Established,
    HandshakeEvent,
    Introduced,
    Offered,
    PeerClosing,
    Refused,
    TrialFailed,
    Welcomed,
)
from pscompy.control.handshake.frames import Identity, RefuseCode
from pscompy.control.handshake.states import LinkState
from pscompy.control.lanes import Answering, Offering
from pscompy.control.peer import Record
from pscompy.control.precon import Link
from pscompy.control.worker import Engine, Lane
from pscompy.errors import ConnectError, NameInUse, ProtocolError, PscomError

logger = logging.getLogger(__name__)


class Door(Protocol):
    def proved(self, link: Link) -> None:
        """The link has proved the key."""


class Listener(Protocol):
    """Where links come in."""

    @property
    def door(self) -> Door | None: ...
    @property
    def deliver(self) -> Callable[[Record], object]:
        """Gets every connection that has come up."""


class Host(ABC):
    """Who decides. Called on the control thread."""

    here: Identity
    engine: Engine
    patience: float  # seconds that a candidate has to come up

    @abstractmethod
    def introduced(self, negotiation: Negotiation, event: Introduced) -> None:
        """A peer has come in: `welcome`, `cross` or `refuse`."""

    @abstractmethod
    def welcomed(self, negotiation: Negotiation, event: Welcomed) -> None:
        """We are let in: `accepted_by_host`, or `refuse`."""

    @abstractmethod
    def resumed(self, negotiation: Negotiation) -> None:
        """The peer uses our parked call after all."""

    @abstractmethod
    def busy(self, negotiation: Negotiation, busy: bool) -> None:
        """Lanes are coming up (or not any more): progress must be driven."""

    @abstractmethod
    def established(self, negotiation: Negotiation) -> None:
        """Both sides' lanes are up: `lanes.take` and install them."""

    @abstractmethod
    def failed(self, negotiation: Negotiation, error: PscomError, again: bool) -> None:
        """Nothing comes of it; `again`: another attempt may help."""

    @abstractmethod
    def peer_closing(self, negotiation: Negotiation) -> None:
        """The in-band close is on its way."""

    @abstractmethod
    def guard_ended(self, negotiation: Negotiation, bye: bool) -> None:
        """The link of an established connection has ended."""


class Negotiation:
    """One link and its lanes; `record` is None until it is known whose they are."""

    def __init__(self, host: Host, record: Record | None = None) -> None:
        self.record = record
        self.listener: Listener | None = None  # where it came in, if it did
        self.claimed: Identity | None = None  # whose name this link holds
        self.peer: Identity | None = None
        self.lanes: Offering | Answering | None = None
        self.crossed = False
        self.established = False
        self.link: Link
        self._host = host
        self._over = False

    @property
    def peer_label(self) -> str:
        return str(self.peer) if self.peer else self.link.peer_address

    @property
    def reasons(self) -> dict[str, str]:
        return dict(self.lanes.reasons) if self.lanes else {}

    # ---- what the host decides ----

    def welcome(self) -> None:
        self.link.machine.welcome()
        self._begin_lanes()
        self.link.flush()

    def cross(self) -> None:
        self.crossed = True
        self.link.machine.cross()
        self.link.flush()

    def proceed(self) -> None:
        """The dialer goes on after the welcome, or the one who parked a call uses it."""
        self._begin_lanes()
        self.link.flush()

    def refuse(self, code: RefuseCode, reason: str) -> None:
        """End the link and say why; the host is not told."""
        if self.link.machine.authenticated and not self._over:
            self.link.machine.refuse(code, reason)
        self.leave()

    def leave(self) -> None:
        """End the link without more words than a bye; the host is not told."""
        self._over = True
        self._undo()
        self.link.machine.bye()
        self.link.close()

    def break_off(self) -> None:
        """End the link as if this process had died: the peer's side fails too."""
        self._over = True
        self._undo()
        self.link.drop()

    def dissolve(self) -> None:
        """The link is closed and nothing more happens: refer to nobody."""
        self.record = self.lanes = None
        self.link.disown()

    def take_lanes(self) -> list[Lane]:
        self._host.busy(self, False)
        return self.lanes.take() if self.lanes else []

    def nudge(self) -> None:
        """Tell the peer that the in-band close is on its way."""
        if self.link.machine.state is LinkState.GUARD:
            self.link.machine.closing()
            self.link.flush()

    # ---- what the link tells ----

    def on_link_event(self, link: Link, event: HandshakeEvent) -> None:
        if self._over:
            return
        try:
            _HANDLERS[type(event)](self, event)
        except Exception as error:  # the others go on; the peer shall not wait for us
            logger.exception("the link with %s is broken off", self.peer_label)
            self.break_off()
            self._host.failed(self, ConnectError(f"{self.peer_label}: {error!r}"), again=False)

    def on_link_error(self, link: Link, error: PscomError) -> None:
        error.peer = error.peer or self.peer_label
        logger.warning("%s: %s", self.peer_label, error)
        if self.established:
            self._over = True
            self._host.guard_ended(self, bye=False)
            return
        if isinstance(error, ProtocolError):
            error = ConnectError(f"{self.peer_label}: {error}", peer=error.peer)
        self._fail(error, again=False)

    def _begin_lanes(self) -> None:
        assert self.peer is not None
        kind = Offering if self.link.machine.connector else Answering
        host = self._host
        self.lanes = kind(host.engine, self.link, host.here, self.peer, host.patience)
        self._host.busy(self, True)
        if isinstance(self.lanes, Offering):
            self.lanes.offer()

    def _on_introduced(self, event: Introduced) -> None:
        self.peer = event.identity
        self._host.introduced(self, event)

    def _on_welcomed(self, event: Welcomed) -> None:
        self.peer = event.identity
        self.crossed = event.crossed
        self._host.welcomed(self, event)

    def _on_offered(self, event: Offered) -> None:
        if self.lanes is None:
            if self.crossed:
                self._host.resumed(self)
            self._begin_lanes()
        assert isinstance(self.lanes, Answering)
        self.lanes.offered_by_peer(event.offer)
        self._fail_if_none_left()

    def _on_answered(self, event: Answered) -> None:
        assert isinstance(self.lanes, Offering)
        self.lanes.answered(event.answer)
        self._fail_if_none_left()

    def _on_trial_failed(self, event: TrialFailed) -> None:
        assert self.lanes is not None
        self.lanes.trial_failed(event)
        if isinstance(self.lanes, Answering):
            self.lanes.answer_next()
            self._fail_if_none_left()

    def _fail_if_none_left(self) -> None:
        """Both sides know why; on the acceptor's side nobody waits for an exception."""
        if self._over or self.link.machine.state is not LinkState.CLOSED:
            return
        listed = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
        error = ConnectError(
            f"no transport connects with {self.peer_label}: {listed or 'there is none'}",
            peer=self.peer.name if self.peer else None,
            candidates=self.reasons,
        )
        if not self.link.machine.connector:
            logger.warning("%s", error)
        self._fail(error, again=False)

    def _on_established(self, event: Established) -> None:
        self.established = True
        self._host.established(self)

    def _on_peer_closing(self, event: PeerClosing) -> None:
        self._host.peer_closing(self)

    def _on_refused(self, event: Refused) -> None:
        peer = self.peer.name if self.peer else None
        kind = NameInUse if event.code is RefuseCode.NAME_IN_USE else ConnectError
        error = kind(f"{self.peer_label} refused: {event.reason}", peer=peer)
        self._fail(error, again=event.code in (RefuseCode.LATER, RefuseCode.FULL))

    def _on_ended(self, event: Ended) -> None:
        if self.established:
            self._over = True
            self._host.guard_ended(self, event.bye)
            return
        waited = event.state.name.lower()
        outage = self.link.outage
        how = f"does not answer ({outage})" if outage else "ended the link"
        self._fail(
            ConnectError(f"{self.peer_label} {how} while its {waited} was awaited"),
            again=not event.bye,
        )

    def _fail(self, error: PscomError, again: bool) -> None:
        self._over = True
        self._undo()
        self.link.close()
        self._host.failed(self, error, again)

    def _undo(self) -> None:
        if self.lanes is not None:
            self.lanes.undo()
        self._host.busy(self, False)


_HANDLERS: dict[type[HandshakeEvent], Callable[[Negotiation, Any], None]] = {
    Introduced: Negotiation._on_introduced,
    Welcomed: Negotiation._on_welcomed,
    Offered: Negotiation._on_offered,
    Answered: Negotiation._on_answered,
    TrialFailed: Negotiation._on_trial_failed,
    Established: Negotiation._on_established,
    PeerClosing: Negotiation._on_peer_closing,
    Refused: Negotiation._on_refused,
    Ended: Negotiation._on_ended,
}
