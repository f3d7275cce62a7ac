"""A negotiation: the course of one precon (a TCP connection that carries the handshake), from its
greeting to its end as the guard of a connection.

A negotiation owns its precon and its lanes. It decides nothing about other precons: its `Owner`
decides whether a precon is used, parked or tried again.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from pscompy.control.candidates import Answering, Proposing
from pscompy.control.conn import Conn
from pscompy.control.event_loop import ControlThread
from pscompy.control.factory import LaneFactory
from pscompy.control.handshake.events import (
    Answered,
    Ended,
    Established,
    HandshakeEvent,
    Introduced,
    PeerClosing,
    Proposed,
    Refused,
    TrialFailed,
    Welcomed,
)
from pscompy.control.handshake.frames import RefuseCode
from pscompy.control.handshake.handshake import Handshake, Side
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.states import PreconState
from pscompy.control.lane import Lane
from pscompy.control.precon import Precon
from pscompy.control.repair import Guarded, Rejoining
from pscompy.errors import ConnectError, NameInUse, ProtocolError, PscomError

logger = logging.getLogger(__name__)

R = TypeVar("R")
"""The owner's record of a peer, which a negotiation carries and never looks into."""


class Owner(Protocol[R]):
    """The decisions that a negotiation leaves to its owner. Called on the control thread."""

    def introduced(self, negotiation: Negotiation[R], event: Introduced) -> None:
        """A peer has dialed and proved that it has the key. The owner calls `welcome`, `cross` or
        `refuse`."""

    def welcomed(self, negotiation: Negotiation[R], event: Welcomed) -> None:
        """The listener agrees to the precon. The owner calls `refuse`; or `proceed`, but not yet if
        the precon is crossed (the listener has parked it)."""

    def resumed(self, negotiation: Negotiation[R]) -> None:
        """The peer uses, after all, the precon that this process dialed and the peer had parked."""

    def established(self, negotiation: Negotiation[R]) -> None:
        """The lanes are up on both sides. The owner installs what `take_lanes` returns."""

    def failed(self, negotiation: Negotiation[R], error: PscomError, again: bool) -> None:
        """The precon has ended without lanes. `again` says whether another attempt may succeed."""

    def peer_closing(self, negotiation: Negotiation[R]) -> None:
        """The peer's last message is in flight on the lanes."""

    def guard_ended(self, negotiation: Negotiation[R], bye: bool) -> None:
        """The precon of an established connection has ended; `bye` says whether the peer ended the
        precon on purpose."""


class Negotiation(Generic[R]):
    """One precon and its lanes; `record` is None while the peer is not known."""

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
        self.lanes: Proposing | Answering | None = None
        # `guarded` and `rejoining`, to replace lost lanes, exist once lanes on several rails are up
        self.guarded: Guarded | None = None
        self.rejoining: Rejoining | None = None
        self.crossed = False
        self.established = False
        self._owner = owner
        self._factory = factory
        self._ended = False  # True: the owner is not notified any more
        self.precon = Precon(thread, sock, machine, self)

    @property
    def peer_label(self) -> str:
        """The peer as errors and log lines name it."""
        return str(self.peer) if self.peer else self.precon.peer_address

    @property
    def reasons(self) -> dict[str, str]:
        """The reason for every rejected candidate."""
        return dict(self.lanes.reasons) if self.lanes else {}

    # ---- calls of the owner ----

    def hand_over(self, owner: Owner[R], factory: LaneFactory) -> None:
        """Let the owner of another worker decide about the precon of a peer that was introduced."""
        self._owner = owner
        self._factory = factory
        self.precon.machine.identity = factory.here

    def welcome(self) -> None:
        """Agree to the precon of a peer that was introduced."""
        self.precon.machine.welcome()
        self._begin_lanes()
        self.precon.flush()

    def cross(self) -> None:
        """Park (keep in reserve) the precon of a peer that this process is already connecting
        to."""
        self.crossed = True
        self.precon.machine.cross()
        self.precon.flush()

    def proceed(self) -> None:
        """Negotiate lanes: after the welcome, or on a precon that was parked."""
        self._begin_lanes()
        self.precon.flush()

    def refuse(self, code: RefuseCode, reason: str) -> None:
        """End the precon and send the reason; the owner is not notified."""
        if self.precon.machine.authenticated and not self._ended:
            self.precon.machine.refuse(code, reason)
        self.leave()

    def close_early(self, reason: str) -> None:
        """End the precon before the connection is up, because it was closed here."""
        self.refuse(RefuseCode.CLOSED, reason)

    def lose(self, lanes: dict[int, str]) -> None:
        """Connect new lanes in place of these, which the connection has lost."""
        if self.rejoining is not None:
            self.rejoining.lose(lanes)

    def leave(self) -> None:
        """End the precon with a bye; the owner is not notified."""
        self._ended = True
        self._undo()
        self.precon.machine.bye()
        self.precon.close()

    def break_off(self) -> None:
        """End the precon as if this process had died: the peer's side fails too."""
        self._ended = True
        self._undo()
        self.precon.drop()

    def dissolve(self) -> None:
        """Drop all references to other objects, after the precon is closed and its last event was
        delivered."""
        self.record = self.lanes = self.guarded = self.rejoining = None
        self.precon.disown()

    def take_lanes(self) -> list[Lane]:
        """Return the lanes that came up; the caller owns them."""
        return self.lanes.take() if self.lanes else []

    def guard(self, conn: Conn) -> None:
        """From now on, connect new lanes in place of those that the connection loses."""
        assert self.peer is not None
        assert self.lanes is not None
        if len(self.lanes.rails) > 1:
            token = self.precon.machine.guard_token()
            self._guard(Guarded(self.peer, conn, self.lanes.rails, token))

    def renew(self, guarded: Guarded) -> None:
        """Let this precon guard a connection that is up, in place of a precon that has ended."""
        self.peer = guarded.peer
        self.established = True
        if self.precon.machine.side is Side.LISTENER:
            self.precon.machine.welcome()
            self.precon.flush()
        self._guard(guarded)

    def _guard(self, guarded: Guarded) -> None:
        self.guarded = guarded
        self.rejoining = Rejoining(self._factory, self.precon, guarded)

    def announce_close(self) -> None:
        """Let the peer know that this side's last message is in flight on the lanes."""
        if self.precon.machine.guards:
            self.precon.machine.closing()
            self.precon.flush()

    # ---- events of the precon ----

    def on_precon_event(self, precon: Precon, event: HandshakeEvent) -> None:
        if self._ended:
            return
        try:
            self._handle(event)
        except Exception as error:  # other precons go on, and the peer must not wait for this one
            logger.exception("the precon with %s is broken off", self.peer_label)
            self.break_off()
            if self.established:
                self._owner.guard_ended(self, bye=False)
                return
            failure = ConnectError(f"{self.peer_label}: {error!r}", peer=self.peer_label)
            self._owner.failed(self, failure, again=False)

    def _handle(self, event: HandshakeEvent) -> None:
        if not self.established or type(event) not in _REJOINING:
            _HANDLERS[type(event)](self, event)
        elif self.precon.machine.state is PreconState.CLOSED:
            pass  # nothing to do: the event that ends the precon follows
        elif self.rejoining is not None:
            _REJOINING[type(event)](self.rejoining, event)
        else:
            # an answer without lanes: this connection has one rail only
            self.precon.machine.answer(())

    def on_precon_error(self, precon: Precon, error: PscomError) -> None:
        logger.warning("%s: %s: %s", self.peer_label, type(error).__name__, error)
        if self.established:
            self._end_guard(bye=False)
            return
        if isinstance(error, ProtocolError):
            error = ConnectError(f"{self.peer_label}: {error}")
        self._fail(error, again=False)

    def _begin_lanes(self) -> None:
        assert self.peer is not None
        kind = Proposing if self.precon.machine.connector else Answering
        self.lanes = kind(self._factory, self.precon, self.peer)
        if isinstance(self.lanes, Proposing):
            self.lanes.propose()

    def _on_introduced(self, event: Introduced) -> None:
        self.peer = event.identity
        self._owner.introduced(self, event)

    def _on_welcomed(self, event: Welcomed) -> None:
        self.peer = event.identity
        self.crossed = event.crossed
        self._owner.welcomed(self, event)

    def _on_proposed(self, event: Proposed) -> None:
        if self.lanes is None:
            if self.crossed:
                self._owner.resumed(self)
            self._begin_lanes()
        assert isinstance(self.lanes, Answering)
        self.lanes.on_proposal(event.proposal)
        self._fail_if_none_left()

    def _on_answered(self, event: Answered) -> None:
        assert isinstance(self.lanes, Proposing)
        self.lanes.answered(event.answer)
        self._fail_if_none_left()

    def _on_trial_failed(self, event: TrialFailed) -> None:
        assert self.lanes is not None
        self.lanes.trial_failed(event)
        if isinstance(self.lanes, Answering):
            self.lanes.answer_next()
            self._fail_if_none_left()

    def _fail_if_none_left(self) -> None:
        """Fail with all reasons if the precon was closed for want of candidates. The acceptor logs
        them too, because no call of its program may raise the error."""
        if self._ended or self.precon.machine.state is not PreconState.CLOSED:
            return
        listed = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
        error = ConnectError(
            f"no transport connects with {self.peer_label}: {listed or 'there is none'}",
            candidates=self.reasons,
        )
        if not self.precon.machine.connector:
            logger.warning("%s", error)
        self._fail(error, again=False)

    def _on_established(self, event: Established) -> None:
        self.established = True
        self._owner.established(self)
        self.lanes = None  # frees the candidates, which would otherwise last as long as the precon

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
        outage = self.precon.outage
        how = f"does not answer ({outage})" if outage else "ended the precon"
        self._fail(
            ConnectError(f"{self.peer_label} {how} while its {waited} was awaited"),
            again=not event.bye,
        )

    def _end_guard(self, bye: bool) -> None:
        """End the negotiation of an established connection, whose precon has ended."""
        self._ended = True
        self._undo()
        self.precon.close()
        self._owner.guard_ended(self, bye)

    def _fail(self, error: PscomError, again: bool) -> None:
        error.peer = error.peer or (self.peer.name if self.peer else self.precon.peer_address)
        self._ended = True
        self._undo()
        self.precon.close()
        self._owner.failed(self, error, again)

    def _undo(self) -> None:
        if self.lanes is not None:
            self.lanes.undo()
        if self.rejoining is not None:
            self.rejoining.undo()


_HANDLERS: dict[type[HandshakeEvent], Callable[[Negotiation[Any], Any], None]] = {
    Introduced: Negotiation._on_introduced,
    Welcomed: Negotiation._on_welcomed,
    Proposed: Negotiation._on_proposed,
    Answered: Negotiation._on_answered,
    TrialFailed: Negotiation._on_trial_failed,
    Established: Negotiation._on_established,
    PeerClosing: Negotiation._on_peer_closing,
    Refused: Negotiation._on_refused,
    Ended: Negotiation._on_ended,
}

_REJOINING: dict[type[HandshakeEvent], Callable[[Rejoining, Any], None]] = {
    Proposed: Rejoining.on_proposed,
    Answered: Rejoining.on_answered,
    TrialFailed: Rejoining.on_trial_failed,
    Established: Rejoining.on_established,
}
