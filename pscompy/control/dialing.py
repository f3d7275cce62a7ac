"""This process's own attempts to reach peers: rounds over the locations of an address, with
pauses."""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Callable
from typing import NamedTuple

from pscompy.control import descriptors
from pscompy.control.addresses import Address, Detour, Location
from pscompy.control.connections import Connections
from pscompy.control.dialer import (
    Attempt,
    Backoff,
    Detoured,
    Dialer,
    Ended,
    Reached,
    Refusal,
    Target,
    Targets,
)
from pscompy.control.event_loop import ControlThread
from pscompy.control.handshake.frames import Kind
from pscompy.control.negotiation import Negotiation
from pscompy.control.peer import Record
from pscompy.control.phases import Phase, PhaseEvent
from pscompy.control.precon_options import PreconOptions
from pscompy.control.transports import Transports
from pscompy.errors import ConnectError, PscomError

logger = logging.getLogger(__name__)

NewPrecon = Callable[[Record, Kind, socket.socket], Negotiation[Record]]
"""Begins the dialer's side of a negotiation on a connected socket."""


class Policy(NamedTuple):
    """The settings by which this process dials."""

    retries: int
    precon: PreconOptions


class Dialing:
    """Runs the attempts to connect of all records (`peer.Record`), on the control thread."""

    def __init__(
        self,
        thread: ControlThread,
        transports: Transports,
        connections: Connections,
        policy: Policy,
        new_precon: NewPrecon,
    ) -> None:
        self._thread = thread
        self._transports = transports
        self._connections = connections
        self._policy = policy
        self._new_precon = new_precon

    def begin(self, record: Record, kind: Kind) -> None:
        """Begin the first attempt to reach the peer of `record`."""
        record.attempt = Attempt(kind, Backoff(self._policy.retries))
        self._dial(record)

    # ---- precons that fail ----

    def begin_again(self, record: Record, kind: Kind, error: PscomError) -> None:
        """Make attempts of this process's own, because the precon that the peer had made broke."""
        record.attempt = Attempt(kind, Backoff(self._policy.retries))
        self.next_attempt(record, error, again=True)

    def rival_failed(
        self, record: Record, attempt: Attempt, negotiation: Negotiation[Record], why: Refusal
    ) -> None:
        """Go on after a precon of this attempt has ended before the peer answered on it."""
        del attempt.rivals[negotiation]
        attempt.refused = attempt.refused or why
        if attempt.dialer is not None:
            attempt.dialer.try_next()
        elif not attempt.rivals:
            self.next_attempt(record, *attempt.refused)

    def try_the_rest(self, record: Record, attempt: Attempt, why: Refusal) -> None:
        """Try the locations of the peer's address from which neither an answer nor a failure had
        come, because the process that answered is not the peer."""
        record.precon = None
        attempt.refused = attempt.refused or why
        rest, attempt.rest = attempt.rest, []
        self._dial_locations(record, attempt, rest)

    def next_attempt(self, record: Record, error: PscomError, again: bool) -> None:
        """Go on after the precon in use has failed: use the parked precon that the peer has dialed,
        try again, or give up."""
        record.precon = None
        if record.parked is not None:
            self._use_parked(record, record.parked)
            return
        if self._connections.ended_ranks.lose(record):
            return
        attempt = record.attempt
        delay = attempt.backoff.next() if attempt is not None and again else None
        if attempt is None or delay is None or self._connections.closing:
            self._connections.give_up(record, error)
            return
        if record.phase is Phase.NEGOTIATING:
            calling = attempt.kind is Kind.ASK
            self._connections.step(record, PhaseEvent.ASK if calling else PhaseEvent.DIAL)
        attempt.last_error = error
        logger.debug("%s; next attempt in %.0f ms", error, delay * 1000)
        attempt.timer = self._thread.later(delay, self._dial, record)

    def _use_parked(self, record: Record, parked: Negotiation[Record]) -> None:
        record.parked = None
        self._connections.take(record, parked)
        parked.proceed()

    # ---- one round ----

    def _dial(self, record: Record) -> None:
        attempt = record.attempt
        if attempt is None or self._connections.closing:
            return
        attempt.timer = None
        try:
            address = Address.parse(record.address or "")
        except PscomError as error:
            failure = ConnectError(f"{record.label}: {error}", peer=record.name)
            self._connections.give_up(record, failure)
            return
        attempt.rest, attempt.refused, attempt.closed = [], None, []
        for detour in address.detours:
            try:
                last = not address.locations and detour is address.detours[-1]
                if self._takes(record, attempt, detour, last):
                    return
            except Exception as error:  # a defect of a plug-in fails this connection only
                logger.exception("the relay of %s failed", detour.relay)
                reason = f"{detour}: the relay failed: {error!r}"
                self._connections.give_up(record, cannot_reach(record, reason))
                return
        if address.locations:
            self._dial_locations(record, attempt, address.locations)
        else:
            reason = "; ".join(attempt.closed)
            self._connections.give_up(record, cannot_reach(record, reason))

    def _takes(self, record: Record, attempt: Attempt, detour: Detour, last: bool) -> bool:
        """Begin to dial through the relay of a detour, if it leads to the peer, or if it is the
        `last` way: then the relay says why it fails. If there is no such relay, add the reason to
        the detours that are closed."""
        relay = self._transports.relays.get(detour.relay)
        if relay is None:
            attempt.closed.append(f"{detour}: {self._why_no_relay(detour.relay)}")
            return False
        if not (last or relay.leads(detour.location)):
            return False
        callbacks = self._callbacks(record, attempt)
        attempt.dialer = Detoured(self._thread, relay, detour.location, *callbacks)
        return True

    def _why_no_relay(self, name: str) -> str:
        for option in self._transports.options:
            if option.name == name:
                return option.reason or f"the transport {name} has no relay"
        return f"no transport {name} here"

    def _dial_locations(
        self, record: Record, attempt: Attempt, locations: tuple[Location, ...] | Targets
    ) -> None:
        callbacks = self._callbacks(record, attempt)
        attempt.dialer = Dialer(self._thread, locations, self._policy.precon, *callbacks)

    def _callbacks(self, record: Record, attempt: Attempt) -> tuple[Reached, Ended]:
        def reached(sock: socket.socket, target: Target | None) -> None:
            self._on_reached(record, attempt, sock, target)

        def ended(reason: str) -> None:
            self._on_ended(record, attempt, reason)

        return reached, ended

    def _on_reached(
        self, record: Record, attempt: Attempt, sock: socket.socket, target: Target | None
    ) -> None:
        if attempt.dialer is not None and attempt.dialer.over:
            attempt.dialer = None
        negotiation = self._new_precon(record, attempt.kind, sock)
        attempt.rivals[negotiation] = target
        seconds = self._policy.precon.silence_seconds
        silence = None
        if math.isfinite(seconds):
            silence = self._thread.later(seconds, self._on_silence, record, attempt, negotiation)

        def answered() -> None:
            if silence is not None:
                silence.cancel()
            self._on_answer(record, attempt, negotiation)

        negotiation.precon.on_answer = answered

    def _on_silence(
        self, record: Record, attempt: Attempt, negotiation: Negotiation[Record]
    ) -> None:
        """Give up a precon on which nobody has answered: a program that is not pscompy may listen
        there, or the peer's process is stopped."""
        if negotiation not in attempt.rivals:
            return
        where = negotiation.precon.peer_address
        seconds = self._policy.precon.silence_seconds
        reason = (
            f"a program listens at {where}, but did not answer as pscompy does within {seconds:g} s"
            " (PSP_GUARD_TIMEOUT)"
        )
        negotiation.break_off()
        self.rival_failed(record, attempt, negotiation, (cannot_reach(record, reason), False))

    def _on_answer(
        self, record: Record, attempt: Attempt, negotiation: Negotiation[Record]
    ) -> None:
        """Use this precon if it is the first one on which the peer answers."""
        if negotiation in attempt.rivals:
            attempt.settle(negotiation)
            record.precon = negotiation

    def _on_ended(self, record: Record, attempt: Attempt, reason: str) -> None:
        """End the round, in which no location is left to try, unless precons still await an
        answer."""
        dialer, attempt.dialer = attempt.dialer, None
        assert dialer is not None
        attempt.stalled += dialer.stalled
        if attempt.rivals:
            return
        error: PscomError = cannot_reach(record, "; ".join((reason, *attempt.closed)))
        again = (
            not (dialer.final or dialer.exhausted)
            and attempt.stalled < self._policy.precon.stalled_max
        )
        if attempt.refused is not None:
            error, again = attempt.refused[0], again or attempt.refused[1]
        self.next_attempt(record, error, again)


def cannot_reach(record: Record, reason: str) -> ConnectError:
    reason = reason.removeprefix(f"{record.label}: ")
    return ConnectError(f"{record.label} cannot be reached: {reason}", peer=record.label)


def no_descriptor(record: Record) -> ConnectError:
    """Return the error of a connection for which this process has no descriptor left."""
    return cannot_reach(record, descriptors.remedy())
