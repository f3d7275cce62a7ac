"""The lanes of one negotiation: offered or answered, tried one candidate after the other.

`Offering` is the connector's half, `Answering` the acceptor's. Both call the machine of their
link, collect the reason of every candidate that fell, and leave no lane behind but the one that
`take` hands out.
"""

from __future__ import annotations

from collections.abc import Iterator

from pscompy.control import selection
from pscompy.control.engine import Engine, Lane
from pscompy.control.events import TrialFailed
from pscompy.control.frames import Answer, Candidate, Choice, Identity, Offer
from pscompy.control.precon import Link
from pscompy.control.selection import Option
from pscompy.control.states import LinkState
from pscompy.errors import PscomError

ROLE_CONNECTOR, ROLE_ACCEPTOR, ROLE_SELF = 0, 1, 2  # psc_role_t


class Lanes:
    """What both halves share: the attempt at hand, and why earlier ones fell."""

    def __init__(self, engine: Engine, link: Link, here: Identity, there: Identity) -> None:
        self.reasons: dict[str, str] = {}
        self.offered: tuple[str, ...] = ()
        self._engine = engine
        self._link = link
        self._here = here
        self._there = there
        self._lane: Lane | None = None
        self._said_up = False

    def take(self) -> list[Lane]:
        """The lanes of the attempt that was established; the others are undone."""
        lane, self._lane = self._lane, None
        self.undo()
        return [] if lane is None else [lane]

    def undo(self) -> None:
        """Destroy what is left."""
        if self._lane is not None:
            self._lane.destroy()
            self._lane = None

    def trial_failed(self, event: TrialFailed) -> None:
        """Both sides know: undo the attempt and remember why."""
        if self._lane is not None:
            self._fell(self._lane.option.name, event.reason, here=event.here)
            self._lane.destroy()
            self._lane = None

    def _fell(self, transport: str, reason: str, here: bool) -> None:
        reason = reason.removeprefix(f"{transport}: ")
        self.reasons[transport] = f"{reason} ({'here' if here else 'there'})"

    def _try(self, lane: Lane, role: int, address: bytes) -> None:
        self._lane = lane
        self._said_up = False
        lane.on_change = self._on_change
        token = self._link.machine.lane_token(0)
        try:
            lane.connect(role, token, address)
        except PscomError as error:
            self._link.deliver(self._link.machine.lane_failed(str(error)))
            return
        self._on_change()  # some are up at once

    def _on_change(self) -> None:
        lane = self._lane
        if lane is None or self._link.machine.state is not LinkState.TRIAL:
            return
        if lane.failed:
            reason = lane.reason or "no reason given"
            self._link.deliver(self._link.machine.lane_failed(reason))
        elif lane.up and not self._said_up:
            self._said_up = True
            self._link.deliver(self._link.machine.lane_up())


class Offering(Lanes):
    """The connector's half: a fresh lane for every candidate."""

    def __init__(self, engine: Engine, link: Link, here: Identity, there: Identity) -> None:
        super().__init__(engine, link, here, there)
        self._candidates: list[Lane] = []

    def offer(self) -> None:
        usable, absent = selection.candidates(self._engine.options, self._here, self._there)
        candidates = []
        for option in usable:
            try:
                candidates.append(self._candidate(option))
            except PscomError as error:
                absent[option.name] = str(error)
        for name, reason in absent.items():
            self._fell(name, reason, here=True)
        self.offered = tuple(candidate.transport for candidate in candidates)
        self._link.machine.offer(Offer(tuple(candidates), tuple(absent.items())))
        self._link.flush()

    def answered(self, answer: Answer) -> None:
        """Try what the acceptor has chosen."""
        for name, reason in answer.fallen:
            self._fell(name, reason, here=False)
        if answer.lanes:
            choice = answer.lanes[0]
            self._try(self._candidates[choice.candidate], ROLE_CONNECTOR, choice.address)

    def undo(self) -> None:
        super().undo()
        for lane in self._candidates:
            lane.destroy()
        self._candidates = []

    def take(self) -> list[Lane]:
        self._candidates = [lane for lane in self._candidates if lane is not self._lane]
        return super().take()

    def _candidate(self, option: Option) -> Candidate:
        lane = self._engine.create_lane(option)
        try:
            address = lane.address()
        except PscomError:
            lane.destroy()
            raise
        self._candidates.append(lane)
        return Candidate(option.name, option.user_priority, address)


class Answering(Lanes):
    """The acceptor's half: goes through the offer until a candidate comes up."""

    def __init__(self, engine: Engine, link: Link, here: Identity, there: Identity) -> None:
        super().__init__(engine, link, here, there)
        self._choices: Iterator[tuple[int, Option | None, str]] = iter(())
        self._fallen: dict[str, str] = {}
        self._offer = Offer(())

    def offered_by_peer(self, offer: Offer) -> None:
        self._offer = offer
        self.offered = tuple(candidate.transport for candidate in offer.candidates)
        for name, reason in offer.absent:
            self._fell(name, reason, here=False)
        self._choices = selection.choices(offer, self._engine.options, self._here, self._there)
        self.answer_next()

    def answer_next(self) -> bool:
        """Answer with the next candidate that can be tried; False: none is left."""
        for index, option, reason in self._choices:
            if option is None:
                self._refuse(index, reason)
                continue
            try:
                lane, address = self._fresh(option)
            except PscomError as error:
                self._refuse(index, str(error))
                continue
            fallen, self._fallen = tuple(self._fallen.items()), {}
            self._link.machine.answer((Choice(index, address),), fallen)
            self._try(lane, ROLE_ACCEPTOR, self._offer.candidates[index].address)
            return True
        self._link.machine.answer((), tuple(self._fallen.items()))
        self._link.flush()
        return False

    def _refuse(self, index: int, reason: str) -> None:
        name = self._offer.candidates[index].transport
        self._fallen[name] = reason
        self._fell(name, reason, here=True)

    def _fresh(self, option: Option) -> tuple[Lane, bytes]:
        lane = self._engine.create_lane(option)
        try:
            return lane, lane.address()
        except PscomError:
            lane.destroy()
            raise
