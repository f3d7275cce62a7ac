"""A model of messages that are put into receives of which senders were told (PSC_CAP_PUT_AM in
proto/tuple.h): random interleavings are compared with matching as MPI defines it. The bytes are
in the receive before its message arrives, so a message may find another receive only if the sender
was asked for this one. Each rule is also switched off, and must then be missed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proto import told
from tests.proto.model import Sent
from tests.proto.test_tuple_model import WrongError, violation
from tests.proto.told import Grant, Note, Receive, Side

RULES = {
    "alone": "expose a receive only if no hidden one that was posted earlier overlaps with it",
    "first": "claim the receive that was exposed first",
    "once": "claim a receive once",
    "answered": "claim no receive after CONCEALED for it",
    "silent": "answer CONCEAL only for a receive that was not claimed",
    "reserved": "keep the entry of a withdrawn receive until its PLACED or CONCEALED has arrived",
    "seen": "claim only if the receiver has told that all fitting earlier messages have matched",
    "before": "send the CONCEALs that are due before an ADVERTISE",
    "last": "only the last CONCEAL that is due tells how far messages have matched",
    "asked": "a receive that is cancelled, or that a message comes back to, waits for the answer",
    "anew": "match the message anew that was put into a receive for which the sender was asked",
}


@dataclass
class Put(Note):
    """A message to the sender, with the number of messages that have matched."""

    seen: int = 0


@dataclass
class PutSide(Side):
    matched: int = 0  # messages sent otherwise that have arrived
    seen: int = 0
    told: int = 0
    due: list[Grant] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    peer_seen: int = 0
    asked: set[int] = field(default_factory=set)  # generations of grants


class Run(told.Run):
    sides: list[PutSide]  # type: ignore[assignment]

    def __init__(self, dice: random.Random, off: str = "") -> None:
        super().__init__(dice, off)
        self.sides = [PutSide(0), PutSide(1)]
        self.otherwise = False  # whether the message that arrives was not put

    # ---- the receiver ----

    def expose(self, receive: Receive) -> None:
        source = receive.posted.source
        if source is None:
            return
        side = self.sides[source]
        if self.has("before"):
            self.flush(side)
        super().expose(receive)
        if receive.grant is not None:
            note = side.here.pop()
            side.seen = side.told = side.matched
            side.here.append(
                Put("expose", note.entry, note.generation, note.posted, None, side.told)
            )

    def withdraw(self, receive: Receive) -> None:
        """The sender need not be asked if it sent the message otherwise that takes the receive."""
        grant = receive.grant
        shown = grant is not None and grant.receive is not None
        super().withdraw(receive)
        if not shown:
            return
        assert grant is not None
        assert receive.posted.source is not None
        side = self.sides[receive.posted.source]
        side.here.pop()
        side.seen = side.matched
        side.due.append(grant)
        if self.has("asked") and not self.otherwise:
            side.asked.add(grant.generation)

    def flush(self, side: PutSide) -> None:
        while side.due:
            grant = side.due.pop(0)
            if not side.due or not self.has("last"):
                side.told = side.seen
            side.here.append(Put("conceal", grant.entry, grant.generation, None, None, side.told))

    def deliver(self, message: Sent) -> Receive | None:
        side = self.sides[message.source]
        self.otherwise = message in side.sent
        side.matched += self.otherwise
        receive = super().deliver(message)
        self.otherwise = False
        return receive

    def deliver_claim(self, grant: Grant, message: Sent | None) -> None:
        assert message is not None
        asked = grant.generation in self.sides[message.source].asked
        if grant.receive is None and not asked:
            raise WrongError("a message was put into a receive that is gone")
        super().deliver_claim(grant, message)

    # ---- the senders ----

    def send(self, side: Side) -> None:
        assert isinstance(side, PutSide)
        super().send(side)
        item = side.there[-1]
        if isinstance(item, Sent):
            side.sent.append(item)

    def may(self, side: Side, chosen: Note) -> bool:
        assert isinstance(side, PutSide)
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
        super().learn(side)

    def busy(self, side: Side) -> bool:
        assert isinstance(side, PutSide)
        return bool(side.due) or super().busy(side)


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 1 << 64))
def test_the_rules_keep_the_order(seed: int) -> None:
    assert violation(Run, seed) is None


def test_messages_are_put() -> None:
    """Also into receives whose sender was asked meanwhile."""
    runs = [Run(random.Random(seed)).play() for seed in range(100)]
    assert sum(it.claimed for it in runs) > 100
    assert sum(it.crossed for it in runs) > 10


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    assert any(violation(Run, seed, rule) for seed in range(3000))
