"""A negotiation: the course of one precon link (a TCP link that carries the handshake), from its
greeting to its end as the guard of a connection.

A negotiation owns its link and its lanes. It decides nothing about other links: its `Owner`
decides whether a link is used, parked or tried again.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pscompy.control.candidates import Answering, Offering
from pscompy.control.event_loop import ControlThread
from pscompy.control.factory import LaneFactory
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
from pscompy.control.handshake.frames import RefuseCode
from pscompy.control.handshake.handshake import Handshake, Side
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.states import LinkState
from pscompy.control.lane import Lane
from pscompy.control.precon import Link
from pscompy.control.rejoining import Rejoining
from pscompy.control.selection import Rail
from pscompy.errors import ConnectError, NameInUse, ProtocolError, PscomError

logger = logging.getLogger(__name__)

R = TypeVar("R")
"""The owner's record of a peer, which a negotiation carries and never looks into."""


class Guarded(NamedTuple):
    """A connection over several rails, `rails[i]` for lane i, that a link guards."""

    peer: Identity
    handle: Any
    rails: tuple[Rail, ...]
    token: bytes  # the `guard_token` of the connection's first link


class Owner(Protocol[R]):
    """The decisions that a negotiation leaves to its owner. Called on the control thread."""

    def introduced(self, negotiation: Negotiation[R], event: Introduced) -> None:
        """A peer has dialed and proved that it has the key. The owner calls `welcome`, `cross` or
        `refuse`."""

    def welcomed(self, negotiation: Negotiation[R], event: Welcomed) -> None:
        """The listener agrees to the link. The owner calls `refuse`; or `proceed`, but not yet if
        the link is crossed (the listener has parked it)."""

    def resumed(self, negotiation: Negotiation[R]) -> None:
        """The peer uses, after all, the link that this process dialed and the peer had parked."""

    def established(self, negotiation: Negotiation[R]) -> None:
        """The lanes are up on both sides. The owner installs what `take_lanes` returns."""

    def failed(self, negotiation: Negotiation[R], error: PscomError, again: bool) -> None:
        """The link has ended without lanes. `again` says whether another attempt may succeed."""

    def peer_closing(self, negotiation: Negotiation[R]) -> None:
        """The peer's last message is in flight on the lanes."""

    def guard_ended(self, negotiation: Negotiation[R], bye: bool) -> None:
        """The link of an established connection has ended; `bye` says whether the peer ended the
        link on purpose."""


class Negotiation(Generic[R]):
    """One precon link and its lanes; `record` is None while the peer is not known."""

    def __init__(
        self,
        owner: Owner[R],
        factory: LaneFactory,
        thread: ControlThread,
        sock: socket.socket,
        machine: Handshake,
        record: R | None = None,
    ) -> None:
        self.record = record
        self.peer: Identity | None = None
        self.lanes: Offering | Answering | None = None
        # `guarded` and `rejoining`, to replace lost lanes, exist once lanes on several rails are up
        self.guarded: Guarded | None = None
        self.rejoining: Rejoining | None = None
        self.crossed = False
        self.established = False
        self._owner = owner
        self._factory = factory
        self._ended = False  # True: the owner is not notified any more
        self.link = Link(thread, sock, machine, self)

    @property
    def peer_label(self) -> str:
        """The peer as errors and log lines name it."""
        return str(self.peer) if self.peer else self.link.peer_address

    @property
    def reasons(self) -> dict[str, str]:
        """The reason for every rejected candidate."""
        return dict(self.lanes.reasons) if self.lanes else {}

    # ---- calls of the owner ----

    def hand_over(self, owner: Owner[R], factory: LaneFactory) -> None:
        """Let the owner of another worker decide about the link of a peer that was introduced."""
        self._owner = owner
        self._factory = factory
        self.link.machine.identity = factory.here

    def welcome(self) -> None:
        """Agree to the link of a peer that was introduced."""
        self.link.machine.welcome()
        self._begin_lanes()
        self.link.flush()

    def cross(self) -> None:
        """Park (keep in reserve) the link of a peer that this process is already connecting to."""
        self.crossed = True
        self.link.machine.cross()
        self.link.flush()

    def proceed(self) -> None:
        """Negotiate lanes: after the welcome, or on a link that was parked."""
        self._begin_lanes()
        self.link.flush()

    def refuse(self, code: RefuseCode, reason: str) -> None:
        """End the link and send the reason; the owner is not notified."""
        if self.link.machine.authenticated and not self._ended:
            self.link.machine.refuse(code, reason)
        self.leave()

    def close_early(self, reason: str) -> None:
        """End the link before the connection is up, because it was closed here."""
        self.refuse(RefuseCode.CLOSED, reason)

    def lose(self, lanes: dict[int, str]) -> None:
        """Connect new lanes in place of these, which the connection has lost."""
        if self.rejoining is not None:
            self.rejoining.lose(lanes)

    def leave(self) -> None:
        """End the link with a bye; the owner is not notified."""
        self._ended = True
        self._undo()
        self.link.machine.bye()
        self.link.close()

    def break_off(self) -> None:
        """End the link as if this process had died: the peer's side fails too."""
        self._ended = True
        self._undo()
        self.link.drop()

    def dissolve(self) -> None:
        """Drop all references to other objects, after the link is closed and its last event was
        delivered."""
        self.record = self.lanes = self.guarded = self.rejoining = None
        self.link.disown()

    def take_lanes(self) -> list[Lane]:
        """Return the lanes that came up; the caller owns them."""
        return self.lanes.take() if self.lanes else []

    def guard(self, handle: Any) -> None:
        """From now on, connect new lanes in place of those that the connection loses."""
        assert self.peer is not None
        assert self.lanes is not None
        if len(self.lanes.rails) > 1:
            token = self.link.machine.guard_token()
            self._guard(Guarded(self.peer, handle, self.lanes.rails, token))

    def renew(self, guarded: Guarded) -> None:
        """Let this link guard a connection that is up, in place of a link that has ended."""
        self.peer = guarded.peer
        self.established = True
        if self.link.machine.side is Side.LISTENER:
            self.link.machine.welcome()
            self.link.flush()
        self._guard(guarded)

    def _guard(self, guarded: Guarded) -> None:
        self.guarded = guarded
        self.rejoining = Rejoining(
            self._factory, self.link, guarded.peer, guarded.handle, guarded.rails
        )

    def announce_close(self) -> None:
        """Let the peer know that this side's last message is in flight on the lanes."""
        if self.link.machine.guards:
            self.link.machine.closing()
            self.link.flush()

    # ---- events of the link ----

    def on_link_event(self, link: Link, event: HandshakeEvent) -> None:
        if self._ended:
            return
        try:
            self._handle(event)
        except Exception as error:  # other links go on, and the peer must not wait for this one
            logger.exception("the link with %s is broken off", self.peer_label)
            self.break_off()
            if self.established:
                self._owner.guard_ended(self, bye=False)
                return
            failure = ConnectError(f"{self.peer_label}: {error!r}", peer=self.peer_label)
            self._owner.failed(self, failure, again=False)

    def _handle(self, event: HandshakeEvent) -> None:
        if not self.established or type(event) not in _REJOINING:
            _HANDLERS[type(event)](self, event)
        elif self.link.machine.state is LinkState.CLOSED:
            pass  # nothing to do: the event that ends the link follows
        elif self.rejoining is not None:
            _REJOINING[type(event)](self.rejoining, event)
        else:
            # an answer without lanes: this connection has one rail only
            self.link.machine.answer(())

    def on_link_error(self, link: Link, error: PscomError) -> None:
        logger.warning("%s: %s: %s", self.peer_label, type(error).__name__, error)
        if self.established:
            self._end_guard(bye=False)
            return
        if isinstance(error, ProtocolError):
            error = ConnectError(f"{self.peer_label}: {error}")
        self._fail(error, again=False)

    def _begin_lanes(self) -> None:
        assert self.peer is not None
        kind = Offering if self.link.machine.connector else Answering
        self.lanes = kind(self._factory, self.link, self.peer)
        if isinstance(self.lanes, Offering):
            self.lanes.offer()

    def _on_introduced(self, event: Introduced) -> None:
        self.peer = event.identity
        self._owner.introduced(self, event)

    def _on_welcomed(self, event: Welcomed) -> None:
        self.peer = event.identity
        self.crossed = event.crossed
        self._owner.welcomed(self, event)

    def _on_offered(self, event: Offered) -> None:
        if self.lanes is None:
            if self.crossed:
                self._owner.resumed(self)
            self._begin_lanes()
        assert isinstance(self.lanes, Answering)
        self.lanes.on_offer(event.offer)
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
        """Fail with all reasons if the link was closed for want of candidates. The acceptor logs
        them too, because no call of its program may raise the error."""
        if self._ended or self.link.machine.state is not LinkState.CLOSED:
            return
        listed = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
        error = ConnectError(
            f"no transport connects with {self.peer_label}: {listed or 'there is none'}",
            candidates=self.reasons,
        )
        if not self.link.machine.connector:
            logger.warning("%s", error)
        self._fail(error, again=False)

    def _on_established(self, event: Established) -> None:
        self.established = True
        self._owner.established(self)
        self.lanes = None  # frees the candidates, which would otherwise last as long as the link

    def _on_peer_closing(self, event: PeerClosing) -> None:
        self._owner.peer_closing(self)

    def _on_refused(self, event: Refused) -> None:
        if self.established:
            self._end_guard(bye=False)
            return
        kind = NameInUse if event.code is RefuseCode.NAME_IN_USE else ConnectError
        error = kind(f"{self.peer_label} refused: {event.reason}")
        self._fail(error, again=event.code in (RefuseCode.LATER, RefuseCode.FULL))

    def _on_ended(self, event: Ended) -> None:
        if self.established:
            self._end_guard(event.bye)
            return
        waited = event.state.name.lower()
        outage = self.link.outage
        how = f"does not answer ({outage})" if outage else "ended the link"
        self._fail(
            ConnectError(f"{self.peer_label} {how} while its {waited} was awaited"),
            again=not event.bye,
        )

    def _end_guard(self, bye: bool) -> None:
        """End the negotiation of an established connection, whose link has ended."""
        self._ended = True
        self._undo()
        self.link.close()
        self._owner.guard_ended(self, bye)

    def _fail(self, error: PscomError, again: bool) -> None:
        error.peer = error.peer or (self.peer.name if self.peer else self.link.peer_address)
        self._ended = True
        self._undo()
        self.link.close()
        self._owner.failed(self, error, again)

    def _undo(self) -> None:
        if self.lanes is not None:
            self.lanes.undo()
        if self.rejoining is not None:
            self.rejoining.undo()


_HANDLERS: dict[type[HandshakeEvent], Callable[[Negotiation[Any], Any], None]] = {
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

_REJOINING: dict[type[HandshakeEvent], Callable[[Rejoining, Any], None]] = {
    Offered: Rejoining.on_offered,
    Answered: Rejoining.on_answered,
    TrialFailed: Rejoining.on_trial_failed,
    Established: Rejoining.on_established,
}
