"""A model of receives that senders see and take (proto/tuple.h): random interleavings of one
receiver and two senders, step by step, are compared with matching as MPI defines it. A claim counts
as the arrival of its message. Each rule is also switched off, and must then be missed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proto.model import ANY, Matcher, Posted, Sent

RULES = {
    "alone": "expose a receive only if no hidden one that was posted earlier overlaps with it",
    "seen": "claim only if all fitting messages that were sent otherwise have been matched",
    "conceal": "a message that matches an advertised receive takes it only if concealing succeeds",
    "first": "claim the receive that was exposed first",
    "last": "ignore entries that were exposed after the look had begun",
    "generation": "a claim names the generation of the entry",
    "acknowledged": "use an entry again only when its claimer has done with it",
}
ENTRIES = 3
PIECES = 2
STEPS = 160
FEW = (0, 0, 0, 1)  # contexts and tags: mostly the same


class WrongError(Exception):
    """The rules were broken."""


@dataclass(eq=False)
class Receive:
    posted: Posted
    order: int
    entry: Entry | None = None


@dataclass(eq=False)
class Entry:
    """A line of a table; `posted` stands for its match bits."""

    generation: int = 0
    state: str = "free"
    posted: Posted | None = None
    receive: Receive | None = None
    put: int = 0
    got: int = 0


@dataclass
class Claim:
    """A placement as its claimer sees it."""

    entry: Entry
    generation: int
    done: bool = False


@dataclass
class Look:
    """A long message whose sender reads the table, an entry at a time."""

    message: Sent
    last: int
    rest: list[Entry]
    found: list[tuple[int, Posted, Entry]] = field(default_factory=list)


def overlap(one: Posted, other: Posted) -> bool:
    return (
        one.context == other.context
        and (one.source == other.source or ANY in (one.source, other.source))
        and (one.tag == other.tag or ANY in (one.tag, other.tag))
    )


class Sender:
    def __init__(self, number: int) -> None:
        self.number = number
        self.table = [Entry() for _ in range(ENTRIES)]
        self.last = self.seen = self.generation = 0
        self.delivered = 0  # messages that the receiver has matched
        self.sent: list[Sent] = []  # messages that were not placed
        self.channel: deque[Sent | Claim] = deque()
        self.look: Look | None = None
        self.claims: list[Claim] = []


class Run:
    def __init__(self, dice: random.Random, off: str = "") -> None:
        self.dice = dice
        self.off = off
        self.reference = Matcher()
        self.senders = [Sender(0), Sender(1)]
        self.receives: list[Receive] = []  # posted, exposed or not
        self.unexpected: list[Sent] = []
        self.held: list[Sent] = []
        self.landing: list[Receive] = []
        self.clock = 0
        self.placed = 0

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
        expected = self.reference.post(wanted)
        found = next((it for it in self.unexpected if wanted.fits(it)), None)
        self.same(found, expected)
        if found is not None:
            self.unexpected.remove(found)
            return
        self.receives.append(Receive(wanted, self.tick()))
        if self.dice.random() < 0.8:
            self.expose(self.receives[-1])

    def expose(self, receive: Receive) -> None:
        if receive.posted.source is None:
            return
        sender = self.senders[receive.posted.source]
        entry = next((it for it in sender.table if self.free(it)), None)
        hidden = any(
            other.order < receive.order
            and other.entry is None
            and overlap(other.posted, receive.posted)
            for other in self.receives
        )
        if entry is None or (hidden and self.has("alone")):
            return
        sender.generation += 1
        receive.entry = entry
        entry.generation, entry.state = sender.generation, "exposed"
        entry.posted, entry.receive = receive.posted, receive
        entry.put = entry.got = 0
        sender.seen, sender.last = sender.delivered, sender.generation

    def free(self, entry: Entry) -> bool:
        return entry.state in ("free", "ended") or (
            entry.state == "landed" and not self.has("acknowledged")
        )

    def conceal(self, receive: Receive) -> bool:
        """True if the receive is hidden, or hidden again."""
        entry = receive.entry
        if entry is None:
            return True
        if entry.state != "exposed":
            return not self.has("conceal")
        assert receive.posted.source is not None
        sender = self.senders[receive.posted.source]
        entry.state, entry.receive = "free", None
        receive.entry, sender.seen = None, sender.delivered
        return True

    def take(self, message: Sent, *, back: bool) -> Receive | None:
        """The receive for a message that arrives or comes back."""
        for receive in list(self.receives):
            if not receive.posted.fits(message):
                continue
            if self.conceal(receive):
                self.receives.remove(receive)
                return receive
            if not back:
                raise WrongError("an arrival finds its receive taken")
        return None

    def hand_over(self) -> None:
        for receive in self.receives:
            if receive.entry is None and self.dice.random() < 0.5:
                self.expose(receive)

    def deliver(self, sender: Sender) -> None:
        if not sender.channel:
            return
        item = sender.channel.popleft()
        if isinstance(item, Claim):
            self.begin_landing(item)
        else:
            sender.delivered += 1
            expected = self.reference.arrive(item)
            receive = self.take(item, back=False)
            self.same(receive and receive.posted, expected)
            if receive is None:
                self.unexpected.append(item)
        self.hand_over()

    def begin_landing(self, claim: Claim) -> None:
        receive = claim.entry.receive
        if receive not in self.receives or receive is None:
            raise WrongError("a receive that is gone was taken")
        self.receives.remove(receive)
        self.landing.append(receive)

    def cancel(self) -> None:
        if not self.receives:
            return
        receive = self.dice.choice(self.receives)
        if receive.entry is not None and receive.entry.state != "exposed":
            return  # too late
        self.conceal(receive)
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
        receive = self.take(message, back=True)
        self.same(receive and receive.posted, expected)
        if receive is None:
            self.unexpected.append(message)
            order = {it: place for place, it in enumerate(self.reference.unexpected)}
            self.unexpected.sort(key=lambda it: order[it])

    # ---- the senders ----

    def send(self, sender: Sender) -> None:
        if sender.look is not None:
            return
        message = Sent(
            self.tick(), self.dice.choice(FEW), sender.number, self.dice.choice(FEW), b""
        )
        if self.dice.random() < 0.3:
            self.send_otherwise(sender, message)
        else:
            sender.look = Look(message, sender.last, list(sender.table))
            self.dice.shuffle(sender.look.rest)

    def send_otherwise(self, sender: Sender, message: Sent) -> None:
        sender.sent.append(message)
        sender.channel.append(message)

    def step(self, sender: Sender) -> None:
        look = sender.look
        if look is None:
            return
        if look.rest:
            entry = look.rest.pop()
            if entry.state == "exposed" and (entry.generation <= look.last or not self.has("last")):
                assert entry.posted is not None
                look.found.append((entry.generation, entry.posted, entry))
            return
        sender.look = None
        fitting = [it for it in look.found if it[1].fits(look.message)]
        fitting.sort(key=lambda it: it[0], reverse=not self.has("first"))
        if not fitting or not self.claim(sender, look.message, *fitting[0]):
            self.send_otherwise(sender, look.message)

    def claim(
        self, sender: Sender, message: Sent, generation: int, seen_as: Posted, entry: Entry
    ) -> bool:
        unseen = any(seen_as.fits(it) for it in sender.sent[sender.seen :])
        if unseen and self.has("seen"):
            return False
        if entry.state != "exposed" or (entry.generation != generation and self.has("generation")):
            return False
        assert entry.posted is not None
        if any(isinstance(it, Sent) and entry.posted.fits(it) for it in sender.channel):
            raise WrongError("an earlier message is overtaken")
        self.same(entry.posted, self.reference.arrive(message))
        entry.state = "taken"
        claim = Claim(entry, entry.generation)
        sender.claims.append(claim)
        sender.channel.append(claim)
        self.placed += 1
        return True

    # ---- copying ----

    def copy(self, sender: Sender) -> None:
        claims = [it for it in sender.claims if not it.done]
        if not claims:
            return
        claim = self.dice.choice(claims)
        entry = claim.entry
        landing = entry.receive in self.landing
        if entry.generation != claim.generation:
            raise WrongError("the claimer cannot tell how its message ended")
        if entry.put + entry.got < PIECES:
            if landing and self.dice.random() < 0.5:
                entry.got += 1
            else:
                entry.put += 1
        elif landing and self.dice.random() < 0.5:
            self.end_landing(entry)
        elif self.dice.random() < 0.5:
            claim.done = True
            entry.state = "ended" if entry.state == "landed" else "acknowledged"

    def end_landing(self, entry: Entry) -> None:
        assert entry.receive is not None
        self.landing.remove(entry.receive)
        entry.state = "ended" if entry.state == "acknowledged" else "landed"

    # ---- all ----

    def same(self, found: object, expected: object) -> None:
        if found is not expected:
            raise WrongError(f"{found} instead of {expected}")

    def play(self) -> int:
        """Returns the number of messages that were placed."""
        for _ in range(STEPS):
            sender = self.dice.choice(self.senders)
            what = self.dice.choices(
                (self.post, self.cancel, self.probe, self.requeue),
                weights=(6, 1, 2, 2),
            )[0]
            act = self.dice.choices(
                (self.deliver, self.send, self.step, self.copy), weights=(3, 3, 8, 4)
            )[0]
            if self.dice.random() < 0.3:
                what()
            else:
                act(sender)
        for sender in self.senders:
            while sender.channel:
                self.deliver(sender)
        return self.placed


def violation(run: Callable[..., Any], seed: int, *left_out: str) -> WrongError | None:
    """The first wrong step of a run, if there is one."""
    try:
        run(random.Random(seed), *left_out).play()
    except WrongError as error:
        return error
    return None


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 1 << 64))
def test_the_rules_keep_the_order(seed: int) -> None:
    assert violation(Run, seed) is None


def test_messages_are_placed() -> None:
    assert sum(Run(random.Random(seed)).play() for seed in range(100)) > 100


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    assert any(violation(Run, seed, rule) for seed in range(3000))
