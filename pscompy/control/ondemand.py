"""Connecting on demand: which side dials, whose precon is used, and who is refused.

In a World both sides have a connection before either uses it. The side with the lower name is
always the connector. The other side makes a precon (an ASK) that asks for this; the connector then
uses the precon. If both sides make a precon at once, the ASK is crossed: its precon is parked until
the other precon has come up, and used if the other one fails. Everything here runs on the control
thread.
"""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import Callable
from functools import partial

from pscompy.control import descriptors, repair, selection
from pscompy.control.addresses import Address
from pscompy.control.connections import Connections
from pscompy.control.dialer import Dialer, Ended, Reached
from pscompy.control.dialing import Dialing, Policy, no_descriptor
from pscompy.control.event_loop import ControlThread
from pscompy.control.factory import LaneFactory
from pscompy.control.handshake.events import Introduced, Welcomed
from pscompy.control.handshake.frames import Kind, RefuseCode
from pscompy.control.handshake.handshake import Handshake, Side
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.keys import Key
from pscompy.control.listening import Listener
from pscompy.control.loopback import connect_self
from pscompy.control.negotiation import Negotiation
from pscompy.control.peer import FindPeer, Record
from pscompy.control.phases import ON_ASK, ON_CONNECT, Phase, PhaseEvent, Verdict
from pscompy.control.precon import Precon
from pscompy.control.precons import Precons
from pscompy.control.repair import Guarded, Renewal
from pscompy.errors import Closed, ConnectError, NameInUse, PscomError

logger = logging.getLogger(__name__)


class OnDemand:
    """The owner of all negotiations (`negotiation.Owner`).

    The control plane calls `begin` for a connection that is used, `accept` for a socket that a
    listener has accepted, and `break_off_all` and `forget` at the end. `sibling` returns the
    OnDemand of another worker of the session, by its job, or None.
    """

    def __init__(
        self,
        thread: ControlThread,
        factory: LaneFactory,
        connections: Connections,
        policy: Policy,
        key: Key,
        find_peer: FindPeer,
        sibling: Callable[[str], OnDemand | None],
    ) -> None:
        self._key = key
        self._find_peer = find_peer
        self._sibling = sibling
        self._thread = thread
        self._factory = factory
        self._transports = factory.worker.transports
        self._here = factory.here
        self._connections = connections
        self._policy = policy
        self._precons = Precons(thread, factory.here)
        self._dialing = Dialing(thread, self._transports, connections, policy, self._dialed)
        # the listener that has accepted the negotiation's precon
        self._listeners: dict[Negotiation[Record], Listener] = {}

    # ---- calls of the control plane ----

    def begin(self, record: Record) -> None:
        """Connect; the core and the callers that wait for the record are notified of the
        outcome."""
        if record.phase is not Phase.LAZY:
            return
        if self._connections.closing:
            record.error = Closed(f"{self._here.name} is closed")
            record.conn.close()
            return
        record.error = None
        kind = self._own_kind(record)
        self._connections.step(record, PhaseEvent.ASK if kind is Kind.ASK else PhaseEvent.DIAL)
        if record.name == self._here.name:
            connect_self(self._connections, self._factory, record)
        elif error := self._nothing_works(record):
            self._connections.give_up(record, error)
        else:
            self._dialing.begin(record, kind)

    def accept(self, listener: Listener, sock: socket.socket) -> Precon:
        """Begin the listener's side of a negotiation on an accepted socket."""
        machine = Handshake(Side.LISTENER, self._key, self._here)
        negotiation = self._negotiate(sock, machine, None)
        self._listeners[negotiation] = listener
        negotiation.precon.on_close.append(lambda precon: self._listeners.pop(negotiation, None))
        return negotiation.precon

    def break_off_all(self) -> None:
        """End all precons at once."""
        self._precons.break_off_all()

    def forget(self) -> None:
        """In the child after a fork: close the descriptors."""
        self._precons.forget()
        for record in self._connections.records():
            if isinstance(record.precon, Renewal):
                record.precon.forget()

    def _dialed(self, record: Record, kind: Kind, sock: socket.socket) -> Negotiation[Record]:
        machine = Handshake(Side.DIALER, self._key, self._here, kind)
        return self._negotiate(sock, machine, record)

    def _negotiate(
        self, sock: socket.socket, machine: Handshake, record: Record | None
    ) -> Negotiation[Record]:
        # the session's thread, because a precon may send its last bytes after its worker's end
        thread = self._thread.root
        negotiation = Negotiation(self, self._factory, thread, sock, machine, record)
        self._precons.add(negotiation)
        return negotiation

    def _dial_guard(self, record: Record, reached: Reached, ended: Ended) -> Dialer:
        locations = Address.parse(record.address or "").locations
        return Dialer(self._thread, locations, self._policy.precon, reached, ended)

    def _guard_precon(
        self, record: Record, sock: socket.socket, guarded: Guarded
    ) -> Negotiation[Record]:
        machine = Handshake(Side.DIALER, self._key, self._here, Kind.GUARD, token=guarded.token)
        return self._negotiate(sock, machine, record)

    def _own_kind(self, record: Record) -> Kind:
        """Return the kind of precon by which this side connects to the peer."""
        if not record.name:
            return Kind.PLAIN
        return Kind.PEER if self._here.name < record.name else Kind.ASK

    def _nothing_works(self, record: Record) -> ConnectError | None:
        """Return the error if no transport of this session could reach any peer."""
        _, absent = selection.candidates(self._transports.options, self._here, self._here)
        if len(absent) < len(self._transports.options):
            return None
        reasons = {name: f"{reason} (here)" for name, reason in absent.items()}
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return ConnectError(
            f"no transport can connect to {record.label}: {listed or 'none is installed'}",
            peer=record.label,
            candidates=reasons,
        )

    # ---- a peer has dialed ----

    def introduced(self, negotiation: Negotiation[Record], event: Introduced) -> None:
        if (listener := self._listeners.get(negotiation)) is not None:
            listener.authenticated(negotiation.precon)
        other = self._sibling(event.identity.job)
        if other is not None:
            negotiation.hand_over(other, other._factory)
            other._precons.add(negotiation)
            other.introduced(negotiation, event)
        else:
            self._admit(negotiation, event)

    def _admit(self, negotiation: Negotiation[Record], event: Introduced) -> None:
        conflict = self._precons.claim(negotiation, event.identity)
        if self._connections.closing:
            negotiation.refuse(RefuseCode.CLOSED, f"{self._here.name} is closing")
        elif conflict:
            logger.warning("refused a second %s", event.identity)
            negotiation.refuse(RefuseCode.NAME_IN_USE, conflict)
        elif not self._precons.has_room_for(negotiation):
            logger.error("%s is refused: %s", event.identity, descriptors.remedy())
            negotiation.refuse(RefuseCode.FULL, f"{self._here.name}: {descriptors.remedy()}")
        elif event.kind is Kind.PLAIN:
            negotiation.welcome()
        elif event.kind is Kind.GUARD:
            self._guard_introduced(negotiation, event)
        else:
            self._peer_introduced(negotiation, event)

    def _peer_introduced(self, negotiation: Negotiation[Record], event: Introduced) -> None:
        record = self._find(event)
        if record is None:
            reason = f"{event.identity.name} is no peer of {self._here.name}"
            negotiation.refuse(RefuseCode.NOT_HERE, reason)
            return
        verdict = (ON_ASK if event.kind is Kind.ASK else ON_CONNECT)[record.phase]
        if verdict is Verdict.CROSS and not self._has_own_precon(record):
            verdict = Verdict.TAKE
        negotiation.record = record
        self._follow(verdict, record, negotiation)

    def _guard_introduced(self, negotiation: Negotiation[Record], event: Introduced) -> None:
        for record in self._connections.records():
            precon = record.precon
            guarded = precon.guarded if isinstance(precon, Negotiation | Renewal) else None
            if guarded is not None and self._names(guarded, event):
                self._renew(record, negotiation, guarded)
                return
        negotiation.refuse(RefuseCode.NOT_HERE, "there is no such connection")

    def _names(self, guarded: Guarded, event: Introduced) -> bool:
        same = guarded.peer.uid == event.identity.uid
        return same and hmac.compare_digest(guarded.token, event.token)

    def _renew(self, record: Record, negotiation: Negotiation[Record], guarded: Guarded) -> None:
        """Let this precon guard the connection. The guard before may still be open on this side, if
        only the other side has seen its end."""
        negotiation.record = record
        before, record.precon = record.precon, negotiation
        if isinstance(before, Renewal):
            before.settle(negotiation)
        elif before is not None:
            before.break_off()
        self._precons.lanes_are_up(negotiation)
        negotiation.renew(guarded)
        self._connections.guard_renewed(record)

    def _find(self, event: Introduced) -> Record | None:
        """Return the record of a World's peer, or None if the peer's name demands another kind of
        precon, or no such rank is known."""
        there = event.identity
        lower = there.name < self._here.name
        if there.job != self._here.job or lower is not (event.kind is Kind.PEER):
            return None
        record = self._find_peer(there)
        return record if record is not None and record.name == there.name else None

    def fall_back(self, record: Record) -> None:
        """Connect over a precon, because the call that connects ranks of one node without one has
        failed."""
        kind = self._own_kind(record)
        if record.phase in (Phase.LAZY, Phase.NEGOTIATING):
            self._connections.step(record, PhaseEvent.ASK if kind is Kind.ASK else PhaseEvent.DIAL)
        record.when_address_is_known(self._thread, partial(self._dial, record, kind))

    def _dial(self, record: Record, kind: Kind) -> None:
        calling = record.phase in (Phase.DIALING, Phase.ASKING)
        if calling and record.attempt is None and record.precon is None:
            self._dialing.begin(record, kind)

    def _has_own_precon(self, record: Record) -> bool:
        """Return whether this side has a precon to the peer, or is making one."""
        attempt = record.attempt
        return record.precon is not None or (attempt is not None and attempt.dialing)

    def _follow(self, verdict: Verdict, record: Record, negotiation: Negotiation[Record]) -> None:
        name = self._here.name
        if verdict is Verdict.TAKE:
            self._connections.take(record, negotiation)
            negotiation.welcome()
        elif verdict is Verdict.CROSS:
            if record.parked is not None:
                record.parked.leave()
            record.parked = negotiation
            negotiation.cross()
        elif verdict is Verdict.LATER:
            negotiation.refuse(RefuseCode.LATER, f"an older precon to {name} has not ended yet")
        else:
            negotiation.refuse(RefuseCode.CLOSED, f"{name} has closed this connection")

    # ---- this process has dialed ----

    def welcomed(self, negotiation: Negotiation[Record], event: Welcomed) -> None:
        record = negotiation.record
        assert record is not None
        if error := self._wrong_peer(record, negotiation, event.identity):
            code = RefuseCode.NAME_IN_USE if isinstance(error, NameInUse) else RefuseCode.NOT_HERE
            negotiation.refuse(code, str(error))
            self.failed(negotiation, error, again=False)
        elif not self._precons.has_room_for(negotiation):
            negotiation.refuse(RefuseCode.FULL, f"{self._here.name}: {descriptors.remedy()}")
            self.failed(negotiation, no_descriptor(record), again=False)
        elif isinstance(record.precon, Renewal):
            self._renew(record, negotiation, record.precon.guarded)
        elif not event.crossed:
            self._connections.take(record, negotiation)
            negotiation.proceed()

    def resumed(self, negotiation: Negotiation[Record]) -> None:
        assert negotiation.record is not None
        self._connections.take(negotiation.record, negotiation)

    def _wrong_peer(
        self, record: Record, negotiation: Negotiation[Record], there: Identity
    ) -> ConnectError | None:
        """Return the error if another process than expected has answered."""
        if conflict := self._precons.claim(negotiation, there):
            return NameInUse(conflict, peer=there.name)
        expected = record.name or Address.parse(record.address or "").name
        other_job = record.name and there.job != self._here.job
        other = record.peer is not None and there.uid != record.peer.uid
        if (expected and there.name != expected) or other_job or other:
            return ConnectError(f"{record.label} is gone: its address is {there}'s now")
        return None

    # ---- outcomes of negotiations ----

    def established(self, negotiation: Negotiation[Record]) -> None:
        record = negotiation.record
        incoming = record is None
        if record is None:
            record = negotiation.record = self._connections.adopt()
        self._precons.lanes_are_up(negotiation)
        self._connections.established(record, negotiation)
        listener = self._listeners.get(negotiation)
        if self._connections.closing:  # the session began to close while the lanes came up
            record.conn.close()
        elif incoming and listener is not None:
            listener.deliver(record)

    def failed(self, negotiation: Negotiation[Record], error: PscomError, again: bool) -> None:
        record = negotiation.record
        attempt = record.attempt if record is not None else None
        if record is None:
            logger.info("%s", error)
        elif isinstance(record.precon, Renewal):
            record.precon.failed(negotiation)
        elif negotiation is record.parked:
            record.parked = None
        elif attempt is not None and negotiation in attempt.rivals:
            self._dialing.rival_failed(record, attempt, negotiation, (error, again))
        elif negotiation is record.precon:
            met = record.phase is Phase.NEGOTIATING or negotiation.crossed
            if attempt is not None and attempt.rest and not met:
                self._dialing.try_the_rest(record, attempt, (error, again))
            elif attempt is None and again:
                self._dialing.begin_again(record, self._own_kind(record), error)
            else:
                self._dialing.next_attempt(record, error, again)

    def peer_closing(self, negotiation: Negotiation[Record]) -> None:
        self._connections.peer_closing(negotiation.record)

    def guard_ended(self, negotiation: Negotiation[Record], bye: bool) -> None:
        record, guarded, precon = negotiation.record, negotiation.guarded, negotiation.precon
        if record is None or guarded is None or bye or not repair.possible(guarded, precon.outage):
            self._connections.guard_ended(record, bye, precon.outage)
            return
        dial = partial(self._dial_guard, record) if precon.machine.side is Side.DIALER else None
        self._connections.guard_lost(record, precon.outage)
        if record.phase is Phase.UP:
            new_precon = partial(self._guard_precon, record)
            silence = self._policy.precon.silence_seconds
            record.precon = Renewal(self._thread, guarded, dial, new_precon, silence)
