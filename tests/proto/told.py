"""One receiver and two senders that learn of its receives by messages, for the model of
test_tuple_put_model.py: random interleavings are compared with matching as MPI defines it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from tests.proto.model import ANY, Matcher, Posted, Sent
from tests.proto.test_tuple_model import FEW, WrongError, overlap

ENTRIES = 3
STEPS = 160


@dataclass(eq=False)
class Receive:
    posted: Posted
    order: int
    grant: Grant | None = None


@dataclass(eq=False)
class Grant:
    """An entry of the receiver; `receive` is None after the receive was withdrawn."""

    entry: int
    generation: int
    receive: Receive | None


@dataclass
class Note:
    """ADVERTISE, CONCEAL, CONCEALED or CLAIM."""

    kind: str
    entry: int
    generation: int
    posted: Posted | None = None
    message: Sent | None = None


@dataclass
class Side:
    """A sender, and what the receiver knows of it."""

    number: int
    grants: dict[int, Grant] = field(default_factory=dict)
    generation: int = 0
    advertised: dict[int, Note] = field(default_factory=dict)
    there: deque[Sent | Note] = field(default_factory=deque)  # to the receiver
    here: deque[Note] = field(default_factory=deque)  # to the sender


class Run:
    def __init__(self, dice: random.Random, off: str = "") -> None:
        self.dice = dice
        self.off = off
        self.reference = Matcher()
        self.sides = [Side(0), Side(1)]
        self.receives: list[Receive] = []
        self.unexpected: list[Sent] = []
        self.held: list[Sent] = []
        self.clock = self.claimed = self.crossed = 0

    def has(self, rule: str) -> bool:
        return rule != self.off

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    # ---- the receiver ----

    def post(self) -> None:
        wanted = Posted(
            self.dice.choice(FEW),
            self.dice.choice([ANY, 0, 0, 1, 1]),
            self.dice.choice([ANY, *FEW]),
        )
        found = next((it for it in self.unexpected if wanted.fits(it)), None)
        self.same(found, self.reference.post(wanted))
        if found is not None:
            self.unexpected.remove(found)
            return
        self.receives.append(Receive(wanted, self.tick()))
        if self.dice.random() < 0.8:
            self.expose(self.receives[-1])

    def expose(self, receive: Receive) -> None:
        if receive.posted.source is None:
            return
        side = self.sides[receive.posted.source]
        entry = next((it for it in range(ENTRIES) if it not in side.grants), None)
        hidden = any(
            other.order < receive.order
            and other.grant is None
            and overlap(other.posted, receive.posted)
            for other in self.receives
        )
        if entry is None or (hidden and self.has("alone")):
            return
        side.generation += 1
        receive.grant = side.grants[entry] = Grant(entry, side.generation, receive)
        side.here.append(Note("expose", entry, side.generation, receive.posted))

    def withdraw(self, receive: Receive) -> None:
        grant, receive.grant = receive.grant, None
        if grant is None or grant.receive is None:
            return
        assert receive.posted.source is not None
        side = self.sides[receive.posted.source]
        grant.receive = None
        side.here.append(Note("conceal", grant.entry, grant.generation))
        if not self.has("reserved"):
            del side.grants[grant.entry]

    def take(self, message: Sent) -> Receive | None:
        receive = next((it for it in self.receives if it.posted.fits(message)), None)
        if receive is not None:
            self.withdraw(receive)
            self.receives.remove(receive)
        return receive

    def hand_over(self) -> None:
        for receive in self.receives:
            if receive.grant is None and self.dice.random() < 0.5:
                self.expose(receive)

    def arrive(self, side: Side) -> None:
        if not side.there:
            return
        item = side.there.popleft()
        if isinstance(item, Sent):
            self.deliver(item)
        else:
            grant = side.grants.pop(item.entry, None)
            if grant is None or grant.generation != item.generation:
                raise WrongError(f"{item.kind} for a receive that was not exposed")
            if item.kind == "claim":
                self.deliver_claim(grant, item.message)
            elif grant.receive is not None:
                raise WrongError("CONCEALED for a receive that was not withdrawn")
        self.hand_over()

    def deliver(self, message: Sent) -> Receive | None:
        message.place = self.tick()
        expected = self.reference.arrive(message)
        receive = self.take(message)
        self.same(receive and receive.posted, expected)
        if receive is None:
            self.unexpected.append(message)
        return receive

    def deliver_claim(self, grant: Grant, message: Sent | None) -> None:
        assert message is not None
        exposed, grant.receive = grant.receive, None
        self.claimed += 1
        self.crossed += exposed is None
        if not self.has("anew"):
            message.place = self.tick()
            self.same(exposed and exposed.posted, self.reference.arrive(message))
            if exposed is not None:
                self.receives.remove(exposed)
        elif self.deliver(message) is not exposed and exposed is not None:
            raise WrongError("a message did not meet the receive that it has claimed")

    def cancel(self) -> None:
        if not self.receives:
            return
        receive = self.dice.choice(self.receives)
        self.withdraw(receive)
        self.receives.remove(receive)
        self.reference.posted.remove(receive.posted)
        self.hand_over()

    def probe(self) -> None:
        wanted = Posted(0, ANY, self.dice.choice([ANY, 0]))
        found = next((it for it in self.unexpected if wanted.fits(it)), None)
        self.same(found, self.reference.take(wanted))
        if found is not None:
            self.unexpected.remove(found)
            self.held.append(found)

    def requeue(self) -> None:
        if not self.held:
            return
        message = self.held.pop(self.dice.randrange(len(self.held)))
        expected = self.reference.put_back(message)
        receive = self.take(message)
        self.same(receive and receive.posted, expected)
        if receive is None:
            self.unexpected.append(message)
            order = {it: place for place, it in enumerate(self.reference.unexpected)}
            self.unexpected.sort(key=lambda it: order[it])

    # ---- the senders ----

    def send(self, side: Side) -> None:
        message = Sent(0, self.dice.choice(FEW), side.number, self.dice.choice(FEW), b"")
        fitting = [it for it in side.advertised.values() if it.posted and it.posted.fits(message)]
        best = min if self.has("first") else max
        chosen = best(fitting, key=lambda it: it.generation) if fitting else None
        if self.dice.random() < 0.3 or chosen is None or not self.may(side, chosen):
            side.there.append(message)
            return
        if self.has("once"):
            del side.advertised[chosen.entry]
        side.there.append(Note("claim", chosen.entry, chosen.generation, message=message))

    def may(self, side: Side, chosen: Note) -> bool:
        return True

    def learn(self, side: Side) -> None:
        if not side.here:
            return
        note = side.here.popleft()
        if note.kind == "expose":
            side.advertised[note.entry] = note
        elif note.entry in side.advertised or not self.has("silent"):
            if self.has("answered"):
                side.advertised.pop(note.entry, None)
            side.there.append(Note("concealed", note.entry, note.generation))

    # ---- all ----

    def same(self, found: object, expected: object) -> None:
        if found is not expected:
            raise WrongError(f"{found} instead of {expected}")

    def busy(self, side: Side) -> bool:
        return bool(side.there or side.here)

    def play(self) -> Run:
        for _ in range(STEPS):
            side = self.dice.choice(self.sides)
            what = self.dice.choices(
                (self.post, self.cancel, self.probe, self.requeue),
                weights=(6, 1, 2, 2),
            )[0]
            act = self.dice.choices((self.arrive, self.learn, self.send), weights=(3, 5, 3))[0]
            if self.dice.random() < 0.3:
                what()
            else:
                act(side)
        for side in self.sides:
            while self.busy(side):
                self.learn(side)
                self.arrive(side)
            withdrawn = [it for it in side.grants.values() if it.receive is None]
            if withdrawn:
                raise WrongError("an entry is lost")
        return self
