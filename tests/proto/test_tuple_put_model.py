"""A model of messages that are put into receives of which senders were told (PSC_CAP_PUT_AM in
core/proto/tuple_am.h), as test_tuple_am_model.py is one of claims. The bytes are in the receive
when it is claimed, so the claim counts as the arrival of its message. Each rule is also switched
off, and must then be missed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proto import test_tuple_am_model as claims
from tests.proto.model import Sent
from tests.proto.test_tuple_am_model import Note, Permit, Receive, Side
from tests.proto.test_tuple_model import FEW, WrongError

RULES = {
    "alone": "expose a receive only if no hidden one that was posted earlier overlaps with it",
    "first": "claim the receive that was exposed first",
    "once": "claim a receive once",
    "reserved": "keep the entry of a withdrawn receive until its PLACED or CONCEALED has arrived",
    "answered": "claim no receive after CONCEALED for it",
    "silent": "answer CONCEAL only for a receive that was not claimed",
    "seen": "claim only if the receiver has told that all fitting earlier messages have matched",
    "before": "send the CONCEALs that are due before an EXPOSE",
    "last": "only the last CONCEAL that is due tells how far messages have matched",
    "asked": "a receive that is cancelled, or that a message comes back to, waits for the answer",
}


@dataclass
class Put(Note):
    """A message to the sender, with the number of messages that have matched."""

    seen: int = 0


@dataclass(eq=False)
class Asked:
    """A receive that waits for the answer to CONCEAL; `back` is a message that would get it."""

    receive: Receive
    back: Sent | None = None
    settled: bool = False  # the reference has ended it


@dataclass
class PutSide(Side):
    matched: int = 0  # messages sent otherwise that have arrived
    seen: int = 0
    told: int = 0
    due: list[Permit] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    peer_seen: int = 0
    asked: dict[int, Asked] = field(default_factory=dict)  # by generation


class Run(claims.Run):
    sides: list[PutSide]  # type: ignore[assignment]

    def __init__(self, dice: random.Random, off: str = "") -> None:
        super().__init__(dice, off)
        self.sides = [PutSide(0), PutSide(1)]

    # ---- the receiver ----

    def expose(self, receive: Receive) -> None:
        source = receive.posted.source
        if source is None:
            return
        side = self.sides[source]
        if self.has("before"):
            self.flush(side)
        super().expose(receive)
        if receive.permit is not None:
            note = side.here.pop()
            side.seen = side.told = side.matched
            side.here.append(
                Put("expose", note.entry, note.generation, note.posted, None, side.told)
            )

    def withdraw(self, receive: Receive) -> None:
        """An arrival takes the receive."""
        permit = receive.permit
        super().withdraw(receive)
        if permit is not None and receive.posted.source is not None:
            side = self.sides[receive.posted.source]
            side.here.pop()
            self.conceal(side, permit)

    def conceal(self, side: PutSide, permit: Permit) -> None:
        side.seen = side.matched
        side.due.append(permit)

    def flush(self, side: PutSide) -> None:
        while side.due:
            permit = side.due.pop(0)
            if not side.due or not self.has("last"):
                side.told = side.seen
            side.here.append(Put("conceal", permit.entry, permit.generation, None, None, side.told))

    def ask(self, receive: Receive, back: Sent | None) -> bool:
        """Returns false if the receive is not exposed, or need not wait."""
        permit = receive.permit
        if permit is None or not self.has("asked"):
            self.withdraw(receive)
            return False
        assert receive.posted.source is not None
        side = self.sides[receive.posted.source]
        side.asked[permit.generation] = Asked(receive, back)
        self.conceal(side, permit)
        return True

    def cancel(self) -> None:
        if not self.receives:
            return
        receive = self.dice.choice(self.receives)
        self.receives.remove(receive)
        if not self.ask(receive, None) and receive.posted in self.reference.posted:
            self.reference.posted.remove(receive.posted)
        self.hand_over()

    def settle(self, asked: Asked) -> None:
        """Ends the receive in the reference, unless it was claimed before."""
        posted = asked.receive.posted
        if asked.settled or posted not in self.reference.posted:
            return
        asked.settled = True
        if asked.back is None:
            self.reference.posted.remove(posted)
        else:
            self.same(posted, self.reference.put_back(asked.back))

    def waiting(self) -> list[Asked]:
        return [it for side in self.sides for it in side.asked.values()]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A message that comes back passes by the receives that wait for an answer."""
        before = list(self.reference.posted)
        hidden = [it.receive.posted for it in self.waiting()]
        self.reference.posted = [it for it in before if it not in hidden]
        yield
        left = self.reference.posted
        self.reference.posted = [it for it in before if it in hidden or it in left]

    def come_back(self, message: Sent) -> None:
        receive = next((it for it in self.receives if it.posted.fits(message)), None)
        if receive is not None and receive.permit is not None and self.has("asked"):
            self.receives.remove(receive)
            self.ask(receive, message)
            self.hand_over()
            return
        with self.aside():
            expected = self.reference.put_back(message)
            if receive is not None:
                self.receives.remove(receive)
                self.withdraw(receive)
            self.same(receive and receive.posted, expected)
        if receive is None:
            self.unexpected.append(message)
            order = {it: place for place, it in enumerate(self.reference.unexpected)}
            self.unexpected.sort(key=lambda it: order[it])

    def give_back(self) -> None:
        if self.held:
            self.come_back(self.held.pop(self.dice.randrange(len(self.held))))

    def deliver(self, message: Sent) -> Receive | None:
        self.sides[message.source].matched += 1
        for asked in self.waiting():
            if asked.receive.posted.fits(message):
                self.settle(asked)
        return super().deliver(message)

    def deliver_claim(self, permit: Permit, message: Sent | None) -> None:
        assert message is not None
        self.claimed += 1
        asked = self.sides[message.source].asked.pop(permit.generation, None)
        if asked is not None:
            self.crossed += 1
            if asked.back is not None:
                self.come_back(asked.back)
        elif permit.receive in self.receives:
            self.receives.remove(permit.receive)
        else:
            raise WrongError("a message was put into a receive that is gone")

    def arrive(self, side: Side) -> None:
        """As of claims, but CONCEALED may end a receive."""
        item = side.there[0] if side.there else None
        assert isinstance(side, PutSide)
        asked = isinstance(item, Note) and side.asked.get(item.generation)
        permit = isinstance(item, Note) and side.permits.get(item.entry)
        if (
            asked
            and permit
            and isinstance(item, Note)
            and item.kind == "concealed"
            and permit.generation == item.generation
        ):
            permit.receive = None
            self.settle(asked)
            if not asked.settled:
                raise WrongError("a receive that was claimed is cancelled")
            del side.asked[item.generation]
        super().arrive(side)

    # ---- the senders ----

    def send(self, side: Side) -> None:
        assert isinstance(side, PutSide)
        message = Sent(0, self.dice.choice(FEW), side.number, self.dice.choice(FEW), b"")
        fitting = [it for it in side.sights.values() if it.posted and it.posted.fits(message)]
        best = min if self.has("first") else max
        chosen = best(fitting, key=lambda it: it.generation) if fitting else None
        if self.dice.random() < 0.3 or chosen is None or not self.may(side, chosen):
            side.sent.append(message)
            side.there.append(message)
            return
        if self.has("once"):
            del side.sights[chosen.entry]
        message.place = self.tick()
        self.same(chosen.posted, self.reference.arrive(message))
        side.there.append(Note("claim", chosen.entry, chosen.generation, message=message))

    def may(self, side: PutSide, chosen: Note) -> bool:
        assert chosen.posted is not None
        unseen = any(chosen.posted.fits(it) for it in side.sent[side.peer_seen :])
        return not (unseen and self.has("seen"))

    def learn(self, side: Side) -> None:
        assert isinstance(side, PutSide)
        if self.dice.random() < 0.5:
            self.flush(side)
        note = side.here[0] if side.here else None
        if isinstance(note, Put):
            side.peer_seen = note.seen
            asked = side.asked.get(note.generation)
            if asked and note.kind == "conceal" and note.entry in side.sights:
                self.settle(asked)
        super().learn(side)

    def busy(self, side: Side) -> bool:
        assert isinstance(side, PutSide)
        return bool(side.due) or super().busy(side)

    def play(self) -> Run:
        super().play()
        if self.waiting():
            raise WrongError("a receive waits for ever")
        return self


def violation(seed: int, *left_out: str) -> WrongError | None:
    """The first wrong step of a run, if there is one."""
    try:
        Run(random.Random(seed), *left_out).play()
    except WrongError as error:
        return error
    return None


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 1 << 64))
def test_the_rules_keep_the_order(seed: int) -> None:
    assert violation(seed) is None


def test_messages_are_put() -> None:
    """Also into receives whose sender was asked meanwhile."""
    runs = [Run(random.Random(seed)).play() for seed in range(100)]
    assert sum(it.claimed for it in runs) > 100
    assert sum(it.crossed for it in runs) > 10


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    assert any(violation(seed, rule) for seed in range(3000))
