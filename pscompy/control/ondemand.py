"""Lazy connecting: who dials, who calls, whose link counts, and when to try again.

In a World both sides own a connection before anything happens. The side with the lower name is
always the connector; the other one asks it to be (a CALL), on a link that the lower side then
uses. Where both start at once the call is crossed: parked until the other link has come up, and
used if that one does not. All of it runs on the control thread.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pscompy.control import descriptors, selection
from pscompy.control.addresses import Address, Place
from pscompy.control.attempt import Attempt, Refusal
from pscompy.control.dialer import Backoff, Detoured, Dialer, Reached, Target, Targets
from pscompy.control.dialer import Ended as DialEnded
from pscompy.control.event_loop import ControlThread
from pscompy.control.explain import explain
from pscompy.control.handshake.auth import TOKEN_SIZE
from pscompy.control.handshake.events import Introduced, Welcomed
from pscompy.control.handshake.frames import Identity, Kind, RefuseCode
from pscompy.control.handshake.handshake import Handshake, Side
from pscompy.control.handshake.keys import Key
from pscompy.control.handshake.states import ON_CALL, ON_CONNECT, Phase, PhaseEvent, Verdict
from pscompy.control.lanes import ROLE_SELF
from pscompy.control.name_table import Names
from pscompy.control.negotiation import Host, Negotiation
from pscompy.control.peer import Record
from pscompy.control.precon import Link, LinkOptions
from pscompy.control.worker import Engine, Lane
from pscompy.errors import Closed, ConnectError, NameInUse, PscomError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the configuration says about connecting."""

    retries: int
    link: LinkOptions
    candidate_seconds: float  # for a candidate to come up


class Holder(Protocol):
    """What keeps a connection alive for the program while it is in use: `_hot.Worker`."""

    def hold(self, connection: Any, /) -> None:
        """From its first use on."""

    def release(self, id: int, /) -> None:
        """Nothing comes of it any more, unless it is used again."""


class OnDemand(Host):
    """The half of `negotiation.Host` that deals with connecting; see `Control` for the rest."""

    def __init__(
        self,
        thread: ControlThread,
        engine: Engine,
        here: Identity,
        policy: Policy,
        holder: Holder,
    ) -> None:
        self.here = here
        self.engine = engine
        self.patience = policy.candidate_seconds
        self.closing = False
        self.find_peer: Callable[[Identity], Record | None] = lambda identity: None
        self._thread = thread
        self._key: Key  # found when the thread starts
        self._policy = policy
        self._names = Names(here)
        self._negotiations: set[Negotiation] = set()
        self._in_use: set[Record] = set()  # neither lazy nor closed
        self._coming_up: set[Negotiation] = set()  # their lanes take descriptors yet
        self._holder = holder

    # ---- links ----

    def track(self, negotiation: Negotiation, sock: socket.socket, machine: Handshake) -> Link:
        """Give a negotiation its link, and know of both until the link is closed."""
        negotiation.link = Link(self._thread, sock, machine, negotiation)
        negotiation.link.on_close.append(lambda link: self._untrack(negotiation))
        self._negotiations.add(negotiation)
        return negotiation.link

    def _untrack(self, negotiation: Negotiation) -> None:
        self._negotiations.discard(negotiation)
        self._coming_up.discard(negotiation)
        if negotiation.claimed is not None:
            self._names.remove(negotiation.claimed)
        self._thread.call(negotiation.dissolve)  # once its last event has been told

    def _claim(self, negotiation: Negotiation, there: Identity) -> str | None:
        """The peer's name is its own as long as the link lasts; else what is wrong with it."""
        taken = self._names.conflict(there)
        if taken is None:
            self._names.add(there)
            negotiation.claimed = there
        return taken

    def _room_for(self, negotiation: Negotiation) -> bool:
        """Whether descriptors are left for its lanes, and for those that are on their way."""
        self._coming_up.add(negotiation)
        return descriptors.left(descriptors.CONNECTION * len(self._coming_up))

    # ---- lifetimes ----

    def _step(self, record: Record, event: PhaseEvent) -> None:
        """The one door of a record's phase. The program's connection is released before the core
        knows that it is lazy again: its next use holds it anew."""
        record.step(event)
        if record.phase in (Phase.LAZY, Phase.CLOSED):
            self._in_use.discard(record)
            self._holder.release(record.id)
        else:
            self._in_use.add(record)

    # ---- our own attempts ----

    def begin(self, record: Record) -> None:
        """Connect; what comes of it is told to `record.waiting` and to the core."""
        if record.phase is not Phase.LAZY:
            return
        if self.closing:
            record.error = Closed(f"{self.here.name} is closed")
            self.engine.close_connection(record.handle)
            return
        record.error = None
        lower = not record.name or self.here.name < record.name
        self._step(record, PhaseEvent.DIAL if lower else PhaseEvent.CALL)
        kind = (Kind.PEER if lower else Kind.CALL) if record.name else Kind.PLAIN
        record.attempt = Attempt(kind, Backoff(self._policy.retries))
        if record.name == self.here.name:
            self._connect_self(record)
        elif nothing := self._nothing_works(record):
            self._give_up(record, nothing)
        else:
            self._dial(record)

    def _dial(self, record: Record) -> None:
        attempt = record.attempt
        if attempt is None or self.closing:
            return
        attempt.timer = None
        try:
            address = Address.parse(record.address or "")
        except PscomError as error:
            self._give_up(record, ConnectError(f"{record.label}: {error}", peer=record.name))
            return
        attempt.rest, attempt.refused = [], None
        for detour in address.detours:
            relay = self.engine.relays.get(detour.relay)
            if relay is not None and relay.leads(detour.place):
                told = self._tellers(record, attempt)
                attempt.dialer = Detoured(self._thread, relay, detour.place, *told)
                return
        self._dial_places(record, attempt, address.places)

    def _dial_places(
        self, record: Record, attempt: Attempt, places: tuple[Place, ...] | Targets
    ) -> None:
        told = self._tellers(record, attempt)
        attempt.dialer = Dialer(self._thread, places, self._policy.link, *told)

    def _tellers(self, record: Record, attempt: Attempt) -> tuple[Reached, DialEnded]:
        """The two functions that a dialer calls."""

        def reached(sock: socket.socket, target: Target | None) -> None:
            self._on_reached(record, attempt, sock, target)

        def ended(reason: str) -> None:
            self._on_dial_ended(record, attempt, reason)

        return reached, ended

    def _on_reached(
        self, record: Record, attempt: Attempt, sock: socket.socket, target: Target | None
    ) -> None:
        if attempt.dialer is not None and attempt.dialer.over:
            attempt.dialer = None
        machine = Handshake(Side.DIALER, self._key, self.here, attempt.kind)
        negotiation = Negotiation(self, record)
        attempt.rivals[negotiation] = target
        link = self.track(negotiation, sock, machine)
        link.on_heard = lambda: self._on_heard(record, attempt, negotiation)

    def _on_heard(self, record: Record, attempt: Attempt, negotiation: Negotiation) -> None:
        """The first that answers is the link."""
        if negotiation in attempt.rivals:
            attempt.settle(negotiation)
            record.link = negotiation

    def _on_dial_ended(self, record: Record, attempt: Attempt, reason: str) -> None:
        dialer, attempt.dialer = attempt.dialer, None
        assert dialer is not None
        attempt.stalled += dialer.stalled
        if attempt.rivals:
            return
        why = reason.removeprefix(f"{record.label}: ")
        error: PscomError = ConnectError(
            f"{record.label} cannot be reached: {why}", peer=record.label
        )
        again = (
            not (dialer.final or dialer.exhausted)
            and attempt.stalled < self._policy.link.stalled_max
        )
        if attempt.refused is not None:
            error, again = attempt.refused[0], again or attempt.refused[1]
        self._next_attempt(record, error, again)

    def _on_rival_failed(
        self, record: Record, attempt: Attempt, negotiation: Negotiation, why: Refusal
    ) -> None:
        """It ended without a word."""
        del attempt.rivals[negotiation]
        attempt.refused = attempt.refused or why
        if attempt.dialer is not None:
            attempt.dialer.hurry()
        elif not attempt.rivals:
            self._next_attempt(record, *attempt.refused)

    def _try_the_rest(self, record: Record, attempt: Attempt, why: Refusal) -> None:
        """Another process has answered: the peer may be at another place."""
        record.link = None
        attempt.refused = attempt.refused or why
        rest, attempt.rest = attempt.rest, []
        self._dial_places(record, attempt, rest)

    def _next_attempt(self, record: Record, error: PscomError, again: bool) -> None:
        """The link that counted is gone: use a parked one, try again, or give up."""
        record.link = None
        if record.parked is not None:
            self._use_parked(record)
            return
        attempt = record.attempt
        delay = attempt.backoff.next() if attempt is not None and again else None
        if attempt is None or delay is None or self.closing:
            self._give_up(record, error)
            return
        if record.phase is Phase.NEGOTIATING:
            calling = attempt.kind is Kind.CALL
            self._step(record, PhaseEvent.CALL if calling else PhaseEvent.DIAL)
        logger.debug("%s; next attempt in %.0f ms", error, delay * 1000)
        attempt.timer = self._thread.later(delay, self._dial, record)

    def _no_descriptor(self, record: Record) -> ConnectError:
        return ConnectError(
            f"{record.label} cannot be reached: {descriptors.remedy()}", peer=record.label
        )

    def _give_up(self, record: Record, error: PscomError) -> None:
        self._cancel(record)
        candidates = error.candidates if isinstance(error, ConnectError) else {}
        record.report = explain(
            self.engine.options, (), candidates, peer=record.label, note=str(error)
        )
        record.error = error
        self._step(record, PhaseEvent.GAVE_UP)
        logger.info("no connection to %s: %s", record.label, error)
        self.engine.fail(record.handle, Engine.ERR_CONNECT)
        record.tell(error)

    def _cancel(self, record: Record) -> None:
        """Nothing more is tried by ourselves."""
        if record.attempt is not None:
            record.attempt.cancel()
            record.attempt = None
        record.link = None
        if record.parked is not None:
            record.parked.leave()
            record.parked = None

    def _nothing_works(self, record: Record) -> ConnectError | None:
        """Where no transport could reach any peer, nobody needs to be asked."""
        _, absent = selection.candidates(self.engine.options, self.here, self.here)
        if len(absent) < len(self.engine.options):
            return None
        reasons = {name: f"{reason} (here)" for name, reason in absent.items()}
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return ConnectError(
            f"no transport can connect to {record.label}: {listed or 'none is installed'}",
            peer=record.label,
            candidates=reasons,
        )

    # ---- links that come in, or are let in ----

    def introduced(self, negotiation: Negotiation, event: Introduced) -> None:
        listener = negotiation.listener
        if listener is not None and listener.door is not None:
            listener.door.proved(negotiation.link)
        taken = self._claim(negotiation, event.identity)
        if self.closing:
            negotiation.refuse(RefuseCode.CLOSED, f"{self.here.name} is closing")
        elif taken:
            logger.warning("refused a second %s", event.identity)
            negotiation.refuse(RefuseCode.NAME_IN_USE, taken)
        elif not self._room_for(negotiation):
            logger.error("%s is turned away: %s", event.identity, descriptors.remedy())
            negotiation.refuse(RefuseCode.FULL, f"{self.here.name}: {descriptors.remedy()}")
        elif event.kind is Kind.PLAIN:
            negotiation.welcome()
        else:
            self._peer_introduced(negotiation, event)

    def _peer_introduced(self, negotiation: Negotiation, event: Introduced) -> None:
        record = self._find(event)
        if record is None:
            reason = f"{event.identity.name} is no peer of {self.here.name}"
            negotiation.refuse(RefuseCode.NOT_HERE, reason)
            return
        verdict = (ON_CALL if event.kind is Kind.CALL else ON_CONNECT)[record.phase]
        if verdict is Verdict.CROSS and not self._under_way(record):
            verdict = Verdict.TAKE
        negotiation.record = record
        self._follow(verdict, record, negotiation)

    def _find(self, event: Introduced) -> Record | None:
        """The record of a World's peer, if it is one and keeps to the lower-name rule."""
        there = event.identity
        lower = there.name < self.here.name
        if there.job != self.here.job or lower is not (event.kind is Kind.PEER):
            return None
        record = self.find_peer(there)
        return record if record is not None and record.name == there.name else None

    def _follow(self, verdict: Verdict, record: Record, negotiation: Negotiation) -> None:
        name = self.here.name
        if verdict is Verdict.TAKE:
            self._take(record, negotiation)
            negotiation.welcome()
        elif verdict is Verdict.CROSS:
            if record.parked is not None:
                record.parked.leave()
            record.parked = negotiation
            negotiation.cross()
        elif verdict is Verdict.LATER:
            negotiation.refuse(RefuseCode.LATER, f"an older link to {name} has not ended yet")
        else:
            negotiation.refuse(RefuseCode.CLOSED, f"{name} has closed this connection")

    def _under_way(self, record: Record) -> bool:
        """Whether a link of ours is being made, not just waited for."""
        attempt = record.attempt
        return record.link is not None or (attempt is not None and attempt.under_way)

    def _take(self, record: Record, negotiation: Negotiation) -> None:
        """This link counts from now on; what we had begun ourselves is ended."""
        if record.attempt is not None:
            record.attempt.cancel()
        own, record.link = record.link, negotiation
        if own is not None and own is not negotiation:
            own.leave()
        self._step(record, PhaseEvent.TAKE)
        self.engine.begin_connecting(record.handle)

    def _use_parked(self, record: Record) -> None:
        parked, record.parked = record.parked, None
        assert parked is not None
        self._take(record, parked)
        parked.proceed()

    def welcomed(self, negotiation: Negotiation, event: Welcomed) -> None:
        record = negotiation.record
        assert record is not None
        if wrong := self._wrong_peer(record, negotiation, event.identity):
            code = RefuseCode.NAME_IN_USE if isinstance(wrong, NameInUse) else RefuseCode.NOT_HERE
            negotiation.refuse(code, str(wrong))
            self.failed(negotiation, wrong, again=False)
        elif not self._room_for(negotiation):
            negotiation.refuse(RefuseCode.FULL, f"{self.here.name}: {descriptors.remedy()}")
            self.failed(negotiation, self._no_descriptor(record), again=False)
        elif not event.crossed:
            self._take(record, negotiation)
            negotiation.proceed()

    def resumed(self, negotiation: Negotiation) -> None:
        """The peer uses our parked call after all."""
        assert negotiation.record is not None
        self._take(negotiation.record, negotiation)

    def _wrong_peer(
        self, record: Record, negotiation: Negotiation, there: Identity
    ) -> ConnectError | None:
        if taken := self._claim(negotiation, there):
            return NameInUse(taken, peer=there.name)
        expected = record.name or Address.parse(record.address or "").name
        if (expected and there.name != expected) or (record.name and there.job != self.here.job):
            return ConnectError(f"{record.label} is gone: its address is {there}'s now")
        return None

    # ---- how it ends ----

    def failed(self, negotiation: Negotiation, error: PscomError, again: bool) -> None:
        record = negotiation.record
        attempt = record.attempt if record is not None else None
        if record is None:
            logger.info("%s", error)
        elif negotiation is record.parked:
            record.parked = None
        elif attempt is not None and negotiation in attempt.rivals:
            self._on_rival_failed(record, attempt, negotiation, (error, again))
        elif negotiation is record.link:
            met = record.phase is Phase.NEGOTIATING or negotiation.crossed
            if attempt is not None and attempt.rest and not met:
                self._try_the_rest(record, attempt, (error, again))
            elif attempt is None and again:
                self._try_ourselves(record, error)
            else:
                self._next_attempt(record, error, again)

    def _try_ourselves(self, record: Record, error: PscomError) -> None:
        """A peer's link broke; somebody here may wait for it meanwhile."""
        kind = Kind.PEER if self.here.name < record.name else Kind.CALL
        record.attempt = Attempt(kind, Backoff(self._policy.retries))
        self._next_attempt(record, error, again=True)

    def install(self, record: Record, negotiation: Negotiation) -> None:
        """Both sides are ready: messages travel from now on."""
        assert negotiation.peer is not None
        assert negotiation.lanes is not None
        self._coming_up.discard(negotiation)
        record.link = None
        self._cancel(record)
        record.link = negotiation
        record.peer = negotiation.peer
        offered = negotiation.lanes.offered
        self._install(record, negotiation.take_lanes(), offered, negotiation.reasons)

    def _install(
        self,
        record: Record,
        lanes: list[Lane],
        offered: tuple[str, ...],
        reasons: dict[str, str],
    ) -> None:
        option = lanes[0].option
        assert option.estimates is not None
        params = selection.parameters(option.estimates, self.wishes(option), len(lanes))
        record.transport = option.name
        record.report = explain(
            self.engine.options,
            offered,
            reasons,
            choice=record.transport,
            lanes=len(lanes),
            params=params,
            matching=lanes[0].matching(),
            estimates=option.estimates,
            peer=record.label,
        )
        self.engine.begin_connecting(record.handle)
        self._step(record, PhaseEvent.ESTABLISHED)
        try:
            self.engine.install(record.handle, lanes, params)
        except PscomError:  # closed here meanwhile: the core's event ends the rest
            for lane in lanes:
                lane.destroy()

    def wishes(self, option: selection.Option) -> selection.Wishes:
        return selection.Wishes()

    # ---- ourselves ----

    def _connect_self(self, record: Record) -> None:
        """A lane of a transport that connects a session with itself; no link is needed."""
        reasons = {}
        for option in selection.ordered(self.engine.options):
            reason = selection.why_not_self(option)
            if reason is None:
                self._loop(record, option)
                return
            reasons[option.name] = f"{reason} (here)"
        error = ConnectError(
            "no transport connects this process with itself", peer=record.name, candidates=reasons
        )
        self._give_up(record, error)

    def _loop(self, record: Record, option: selection.Option) -> None:
        lane = self.engine.create_lane(option)
        record.peer = self.here
        self._step(record, PhaseEvent.TAKE)

        def on_change() -> None:
            if lane.up and record.phase is Phase.NEGOTIATING:
                self._install(record, [lane], (option.name,), {})
                record.tell(None)
            elif lane.failed and record.phase is Phase.NEGOTIATING:
                reasons = {option.name: f"{lane.reason} (here)"}
                lane.destroy()
                self._give_up(record, ConnectError(lane.reason, candidates=reasons))

        lane.on_change = on_change
        lane.connect(ROLE_SELF, os.urandom(TOKEN_SIZE), lane.address())
        on_change()
