"""The candidates of one negotiation (transports that may carry the connection): their lanes are
proposed or answered, and tried in order.

`Proposing` is the connector's half, `Answering` the acceptor's. Both drive the handshake of their
precon, collect the reason for every rejected candidate, and destroy every lane but those that
`take` returns.

A candidate has a limited time to come up. Each side counts only the time in which its control
thread ran, so that a call that keeps the GIL for long costs the candidate at most one of its TICKS.
A candidate is rejected when its time has passed on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pscompy.control import rail_set, selection
from pscompy.control.event_loop import Timer
from pscompy.control.factory import LaneFactory
from pscompy.control.handshake.events import TrialFailed
from pscompy.control.handshake.frames import CANDIDATES_MAX, Answer, Candidate, Choice, Proposal
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.limits import LANES_MAX
from pscompy.control.lane import ROLE_ACCEPTOR, ROLE_CONNECTOR, Lane
from pscompy.control.precon import Precon
from pscompy.control.rail_set import Chosen, Pick
from pscompy.control.selection import RAILS, Option, Rail
from pscompy.errors import PscomError

TICKS = 8  # parts into which a candidate's time is divided


class Candidates:
    """The common part of `Proposing` and `Answering`, the connector's and the acceptor's half: the
    lanes of the current attempt, and the reasons for rejected candidates. `lost` is the number of
    the lost lane that the attempt replaces; None if the connection has no lanes yet."""

    def __init__(
        self, factory: LaneFactory, precon: Precon, there: Identity, lost: int | None = None
    ) -> None:
        self.rails: tuple[Rail, ...] = ()  # rails of the lanes of the current attempt
        self.reasons: dict[str, str] = {}
        self._noted: set[str] = set()  # transports whose entry in `reasons` names rails left out
        self.proposed: tuple[str, ...] = ()
        self._worker = factory.worker
        self._transports = factory.worker.transports
        self._here = factory.here
        self._seconds = factory.candidate_seconds
        self._precon = precon
        self._there = there
        self._lost = lost
        self._lanes: list[Lane] = []  # lanes of the current attempt, one for each rail
        self._reported_up = False
        self._ticks = 0
        self._timer: Timer | None = None
        precon.machine.check_lanes = self._failure
        # If a lane replaces a lost one the connection is up, so its program usually makes progress
        # itself.
        self._drive = factory.progress.need if lost is None else factory.progress.background
        self._drive(self, True)

    def take(self) -> list[Lane]:
        """Return the lanes of the established attempt, and destroy all others."""
        lanes, self._lanes = self._lanes, []
        self.undo()
        return lanes

    def undo(self) -> None:
        """Destroy the lanes that `take` did not return."""
        self._precon.machine.check_lanes = str
        self._drop()
        self._drive(self, False)

    def trial_failed(self, event: TrialFailed) -> None:
        """Destroy the attempt's lanes and keep the reason, because the attempt failed on both
        sides."""
        transports = {lane.option.name for lane in self._lanes}
        for name in self._noted:
            del self.reasons[name]
        self._noted.clear()
        if len(transports) > 1:
            down = ", ".join(str(lane.rail) for lane in self._lanes if not lane.up)
            self._reject(RAILS, f"{down or 'all'}: {event.reason}", here=event.here)
        elif transports:
            self._reject(transports.pop(), event.reason, here=event.here)
        self._drop()

    def _drop(self) -> None:
        self._cancel_timer()
        for lane in self._lanes:
            lane.destroy()
        self._lanes = []

    def _reject(self, transport: str, reason: str, here: bool) -> None:
        reason = reason.removeprefix(f"{transport}: ")
        self.reasons[transport] = f"{reason} ({'here' if here else 'there'})"

    def _leave_out(self) -> None:
        """Note in `reasons` which rails of this side the attempt does without."""
        full = len(self.rails) == LANES_MAX
        why = f": a connection has {LANES_MAX} at most" if full else ", which is not on both sides"
        for option in {rail.option.name: rail.option for rail in self.rails}.values():
            used = {rail.number for rail in self.rails if rail.option is option}
            if others := sorted(option.rails.keys() - used):
                numbers = " and ".join(map(str, others))
                self.reasons[option.name] = f"without rail {numbers}{why}"
                self._noted.add(option.name)

    def _try(self, role: int, lanes: list[Lane], addresses: list[bytes]) -> None:
        """Connect these lanes. The attempt is up when all lanes are up, and fails when one of them
        fails."""
        self._lanes = lanes
        self.rails = tuple(lane.rail for lane in lanes)
        self._leave_out()
        self._reported_up = False
        self._ticks = 0
        self._start_timer()
        try:
            pairs = zip(lanes, addresses, strict=True)
            any_spare = self._lost is not None or selection.spare(self.rails)
            for number, (lane, address) in enumerate(pairs, self._lost or 0):
                lane.on_change = self._on_change
                token = self._precon.machine.lane_token(number)
                lane.connect(role, token, address, number > 0 or any_spare)
        except PscomError as error:
            self._precon.deliver(self._precon.machine.lane_failed(str(error)))
            return
        self._on_change()  # lanes of some transports are up as soon as `connect` returns

    # ---- the time limit of an attempt ----

    def _start_timer(self) -> None:
        self._cancel_timer()
        if math.isfinite(self._seconds):
            self._timer = self._precon.later(self._seconds / TICKS, self._on_tick)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_tick(self) -> None:
        self._ticks += 1
        if not self._lanes or not self._precon.machine.trying:
            return
        if self._ticks < TICKS:
            self._start_timer()
            return
        stuck = (self._transports.stuck(lane.option) for lane in self._lanes)
        self._precon.deliver(self._precon.machine.lane_late(next(filter(None, stuck), "")))

    # ---- creating and watching lanes ----

    def _create_lanes(self, rails: Iterable[Rail]) -> tuple[list[tuple[Lane, bytes]], str]:
        """Create a lane for each of these rails. Returns each lane that works here with its
        address, and why the last of the other rails does not work ("" if all do)."""
        made, reason = [], ""
        for option, number in rails:
            try:
                lane = self._worker.create_lane(option, number)
            except PscomError as error:
                reason = str(error)
                continue
            try:
                made.append((lane, lane.address()))
            except PscomError as error:
                reason = str(error)
                lane.destroy()
        return made, reason

    def _failure(self) -> str:
        """Return why a lane of the current attempt failed, or "" if none did."""
        failed = next((lane for lane in self._lanes if lane.failed), None)
        return failed.reason or "no reason given" if failed is not None else ""

    def _on_change(self) -> None:
        if not self._lanes or not self._precon.machine.trying:
            return
        if reason := self._failure():
            self._precon.deliver(self._precon.machine.lane_failed(reason))
        elif not self._reported_up and all(lane.up for lane in self._lanes):
            self._reported_up = True
            self._precon.deliver(self._precon.machine.lane_up())


class _Made(NamedTuple):
    """A candidate and its lane."""

    candidate: Candidate
    lane: Lane


class Proposing(Candidates):
    """The half of the connector, which proposes: it creates the lanes of all candidates beforehand,
    one for each rail."""

    def __init__(
        self, factory: LaneFactory, precon: Precon, there: Identity, lost: int | None = None
    ) -> None:
        super().__init__(factory, precon, there, lost)
        self._candidates: list[Lane] = []
        self._proposal = Proposal(())

    def propose(self) -> None:
        """Send the candidates that this side has, and why it lacks the other transports. The
        transports that PSP_RAILS joins are proposed as a group, which precedes the first of them
        alone."""
        usable, absent = selection.candidates(self._transports.options, self._here, self._there)
        alone: dict[str, list[_Made]] = {}
        for option in usable:
            made, reason = self._create_candidates([option])
            if made:
                alone[option.name] = made
            else:
                absent[option.name] = reason
        for name, reason in absent.items():
            self._reject(name, reason, here=True)
        most = CANDIDATES_MAX - sum(map(len, alone.values()))
        together = self._create_group([it for it in usable if it.name in alone], most)
        members = {it.candidate.transport for it in together}
        ordered: list[_Made] = []
        for name, made in alone.items():
            if name in members:
                ordered, together = ordered + together, []
            ordered += made
        self.proposed = tuple(alone)
        self._send(ordered, absent)

    def _create_group(self, usable: list[Option], most: int) -> list[_Made]:
        """Create the lanes of the transports that go together (PSP_RAILS), unless there would be
        more than `most` lanes. Writes into `reasons` which transports are left out."""
        names = self._transports.joined
        if missing := [it for it in names if it not in {option.name for option in usable}]:
            reasons = (
                f"without {it}: {self.reasons.get(it, 'no such transport')}" for it in missing
            )
            self.reasons[RAILS] = "; ".join(reasons)
        joined = rail_set.joined(usable, names)
        if sum(len(option.rails) for option in joined) > most:
            return []
        made, reason = self._create_candidates(joined, group=1)
        if {it.candidate.transport for it in made} == {option.name for option in joined}:
            return made
        for _, lane in made:
            lane.destroy()
        self._reject(RAILS, reason, here=True)
        return []

    def propose_rail(self, rail: Rail) -> bool:
        """Send a candidate for one rail, to replace a lost lane. Returns False if this side cannot
        create a lane on that rail."""
        made, _ = self._create_candidates([rail.option], rail.number)
        if made:
            self._send(made, {})
        return bool(made)

    def _create_candidates(
        self, options: Iterable[Option], only: int | None = None, group: int = 0
    ) -> tuple[list[_Made], str]:
        """Create a lane for each rail of these transports, or one for the rail `only`. Returns the
        lanes as candidates, and why the last lane that failed could not be created."""
        rails = (Rail(option, number) for option in options for number in option.rails)
        made, reason = self._create_lanes(it for it in rails if only in (None, it.number))
        candidates = []
        for lane, address in made:
            (option, number), priority = lane.rail, lane.rail.option.user_priority
            candidates.append(_Made(Candidate(option.name, priority, address, group, number), lane))
        return candidates, reason

    def _send(self, made: list[_Made], absent: Mapping[str, str]) -> None:
        self._candidates = [lane for _, lane in made]
        self._proposal = Proposal(tuple(candidate for candidate, _ in made), tuple(absent.items()))
        self._precon.machine.propose(self._proposal)
        self._precon.flush()

    def answered(self, answer: Answer) -> None:
        """Try the candidates that the acceptor chose."""
        for name, reason in answer.rejected:
            self._reject(name, reason, here=False)
        if answer.lanes:
            lanes = [self._candidates[choice.candidate] for choice in answer.lanes]
            self._try(ROLE_CONNECTOR, lanes, [choice.address for choice in answer.lanes])

    def undo(self) -> None:
        super().undo()
        for lane in self._candidates:
            lane.destroy()
        self._candidates = []

    def take(self) -> list[Lane]:
        self._candidates = [lane for lane in self._candidates if lane not in self._lanes]
        return super().take()


class Answering(Candidates):
    """The half of the acceptor, which tries the candidates of the proposal until one comes up."""

    def __init__(
        self, factory: LaneFactory, precon: Precon, there: Identity, lost: int | None = None
    ) -> None:
        super().__init__(factory, precon, there, lost)
        self._choices: Iterator[Chosen] = iter(())
        self._rejected: dict[str, str] = {}  # reasons for rejections since the last answer
        self._proposal = Proposal(())

    def on_proposal(self, proposal: Proposal) -> None:
        """Answer the connector's proposal."""
        self._proposal = proposal
        self.proposed = _transports(proposal.candidates)
        for name, reason in proposal.absent:
            self._reject(name, reason, here=False)
        joined = self._transports.joined
        if joined and self._lost is None and not any(it.group for it in proposal.candidates):
            self._reject(RAILS, f"{'+'.join(joined)} is not offered", here=False)
        self._choices = rail_set.choices(
            proposal, self._transports.options, self._here, self._there, joined
        )
        self.answer_next()

    def answer_next(self) -> bool:
        """Answer with the next candidate that can be tried. Returns False if none is left."""
        for name, picks, reason in self._choices:
            made, failure = self._create_lanes(pick.rail for pick in picks)
            if name == RAILS and len(made) < len(picks):
                for lane, _ in made:
                    lane.destroy()
                made = []
            if reason or not made:
                self._rejected[name] = reason or failure
                self._reject(name, reason or failure, here=True)
            if made:
                self._answer(picks, made)
                return True
        self._precon.machine.answer((), tuple(self._rejected.items()))
        self._precon.flush()
        return False

    def _answer(self, picks: list[Pick], made: list[tuple[Lane, bytes]]) -> None:
        """Answer with these lanes, and try them."""
        number = {pick.rail.key: pick.number for pick in picks}
        self._lanes = [lane for lane, _ in made]
        rejected, self._rejected = tuple(self._rejected.items()), {}
        chosen = tuple(Choice(number[lane.rail.key], address) for lane, address in made)
        self._precon.machine.answer(chosen, rejected)
        theirs = [self._proposal.candidates[choice.candidate].address for choice in chosen]
        self._try(ROLE_ACCEPTOR, self._lanes, theirs)


def _transports(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    """Return the transports that are proposed, in the connector's order."""
    return tuple(dict.fromkeys(it.transport for it in candidates if it.group == 0))
