"""The lanes of one negotiation: offered or answered, tried one candidate after the other.

`Offering` is the connector's half, `Answering` the acceptor's. Both call the machine of their
link, collect the reason of every candidate that fell, and leave no lane behind but the one that
`take` hands out.

A candidate has a limited time to come up, of which each side counts what it was awake for: a
thread that is held up, by a call that keeps the GIL for example, loses one tick and no more. What
both sides have given its time falls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from pscompy.control import selection
from pscompy.control.event_loop import Timer
from pscompy.control.handshake.events import TrialFailed
from pscompy.control.handshake.frames import Answer, Candidate, Choice, Identity, Offer
from pscompy.control.handshake.states import LinkState
from pscompy.control.precon import Link
from pscompy.control.selection import Option
from pscompy.control.worker import Engine, Lane
from pscompy.errors import PscomError

TICKS = 8  # pieces of a candidate's time
ROLE_CONNECTOR, ROLE_ACCEPTOR, ROLE_SELF = 0, 1, 2  # psc_role_t


class Lanes:
    """State that both halves share: the attempt at hand, and why earlier ones fell. `patience`: the
    seconds that a candidate has."""

    def __init__(
        self, engine: Engine, link: Link, here: Identity, there: Identity, patience: float
    ) -> None:
        self.reasons: dict[str, str] = {}
        self.offered: tuple[str, ...] = ()
        self._engine = engine
        self._link = link
        self._here = here
        self._there = there
        self._lanes: list[Lane] = []  # one for each rail of one transport
        self._said_up = False
        self._patience = patience
        self._ticks = 0
        self._timer: Timer | None = None
        link.machine.check_lanes = self._failure

    def take(self) -> list[Lane]:
        """The lanes of the attempt that was established; the others are undone."""
        lanes, self._lanes = self._lanes, []
        self.undo()
        return lanes

    def undo(self) -> None:
        """Destroy what is left."""
        self._link.machine.check_lanes = str
        self._drop()

    def trial_failed(self, event: TrialFailed) -> None:
        """Both sides know: undo the attempt and remember why."""
        if self._lanes:
            self._fell(self._lanes[0].option.name, event.reason, here=event.here)
        self._drop()

    def _drop(self) -> None:
        self._stop_waiting()
        for lane in self._lanes:
            lane.destroy()
        self._lanes = []

    def _fell(self, transport: str, reason: str, here: bool) -> None:
        reason = reason.removeprefix(f"{transport}: ")
        self.reasons[transport] = f"{reason} ({'here' if here else 'there'})"

    def _try(self, role: int, lanes: list[Lane], addresses: list[bytes]) -> None:
        """Connect all; the attempt is up when they are, and fails with one of them."""
        self._lanes = lanes
        self._said_up = False
        self._ticks = 0
        self._wait()
        try:
            for number, (lane, address) in enumerate(zip(lanes, addresses, strict=True)):
                lane.on_change = self._on_change
                lane.connect(role, self._link.machine.lane_token(number), address)
        except PscomError as error:
            self._link.deliver(self._link.machine.lane_failed(str(error)))
            return
        self._on_change()  # some are up at once

    # ---- time ----

    def _wait(self) -> None:
        self._stop_waiting()
        if math.isfinite(self._patience):
            self._timer = self._link.later(self._patience / TICKS, self._on_tick)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_tick(self) -> None:
        self._ticks += 1
        if not self._lanes or self._link.machine.state is not LinkState.TRIAL:
            return
        if self._ticks < TICKS:
            self._wait()
            return
        why = self._engine.stuck(self._lanes[0].option)
        self._link.deliver(self._link.machine.lane_late(why))

    # ---- lanes ----

    def _fresh(
        self, option: Option, rails: Iterable[int]
    ) -> tuple[list[tuple[int, Lane, bytes]], str]:
        """A lane and its address for each of these rails that works here; with none, why."""
        made, reason = [], ""
        for rail in rails:
            try:
                lane = self._engine.create_lane(option, rail)
            except PscomError as error:
                reason = str(error)
                continue
            try:
                made.append((rail, lane, lane.address()))
            except PscomError as error:
                reason = str(error)
                lane.destroy()
        return made, reason

    def _failure(self) -> str:
        """Why a lane of the attempt at hand has failed; "": none has."""
        failed = next((lane for lane in self._lanes if lane.failed), None)
        return failed.reason or "no reason given" if failed is not None else ""

    def _on_change(self) -> None:
        if not self._lanes or self._link.machine.state is not LinkState.TRIAL:
            return
        if reason := self._failure():
            self._link.deliver(self._link.machine.lane_failed(reason))
        elif not self._said_up and all(lane.up for lane in self._lanes):
            self._said_up = True
            self._link.deliver(self._link.machine.lane_up())


class Offering(Lanes):
    """The connector's half: a fresh lane for every candidate, one for each rail."""

    def __init__(
        self, engine: Engine, link: Link, here: Identity, there: Identity, patience: float
    ) -> None:
        super().__init__(engine, link, here, there, patience)
        self._candidates: list[Lane] = []

    def offer(self) -> None:
        usable, absent = selection.candidates(self._engine.options, self._here, self._there)
        candidates: list[Candidate] = []
        for option in usable:
            made, reason = self._fresh(option, option.rails)
            for rail, lane, address in made:
                self._candidates.append(lane)
                candidates.append(Candidate(option.name, option.user_priority, address, lane=rail))
            if not made:
                absent[option.name] = reason
        for name, reason in absent.items():
            self._fell(name, reason, here=True)
        self.offered = tuple(dict.fromkeys(candidate.transport for candidate in candidates))
        self._link.machine.offer(Offer(tuple(candidates), tuple(absent.items())))
        self._link.flush()

    def answered(self, answer: Answer) -> None:
        """Try what the acceptor has chosen."""
        for name, reason in answer.fallen:
            self._fell(name, reason, here=False)
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


class Answering(Lanes):
    """The acceptor's half: goes through the offer until a candidate comes up."""

    def __init__(
        self, engine: Engine, link: Link, here: Identity, there: Identity, patience: float
    ) -> None:
        super().__init__(engine, link, here, there, patience)
        self._choices: Iterator[tuple[list[int], Option | None, str]] = iter(())
        self._fallen: dict[str, str] = {}
        self._offer = Offer(())

    def offered_by_peer(self, offer: Offer) -> None:
        self._offer = offer
        self.offered = tuple(dict.fromkeys(it.transport for it in offer.candidates))
        for name, reason in offer.absent:
            self._fell(name, reason, here=False)
        self._choices = selection.choices(offer, self._engine.options, self._here, self._there)
        self.answer_next()

    def answer_next(self) -> bool:
        """Answer with the next candidate that can be tried; False: none is left."""
        for indices, option, reason in self._choices:
            if option is None:
                self._refuse(indices[0], reason)
                continue
            offered = {self._offer.candidates[index].lane: index for index in indices}
            made, reason = self._fresh(option, offered)
            if not made:
                self._refuse(indices[0], reason)
                continue
            fallen, self._fallen = tuple(self._fallen.items()), {}
            chosen = tuple(Choice(offered[rail], address) for rail, _, address in made)
            self._link.machine.answer(chosen, fallen)
            theirs = [self._offer.candidates[choice.candidate].address for choice in chosen]
            self._try(ROLE_ACCEPTOR, [lane for _, lane, _ in made], theirs)
            return True
        self._link.machine.answer((), tuple(self._fallen.items()))
        self._link.flush()
        return False

    def _refuse(self, index: int, reason: str) -> None:
        name = self._offer.candidates[index].transport
        self._fallen[name] = reason
        self._fell(name, reason, here=True)
