"""Two real handshake state machines, joined by bytes in memory."""

from __future__ import annotations

import os

from pscompy.control.handshake import limits
from pscompy.control.handshake.events import (
    Answered,
    HandshakeEvent,
    Introduced,
    Proposed,
    Welcomed,
)
from pscompy.control.handshake.frames import Candidate, Choice, Kind, Proposal
from pscompy.control.handshake.handshake import Handshake, Side, frames
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.keys import Key

KEY = Key(b"k" * 32, "the test")
OTHER_KEY = Key(b"o" * 32, "another test")


def identity(name: str, **changes: object) -> Identity:
    plain = Identity(os.urandom(16), name, "boot-1", "node-1", 1000, 4711)
    return plain._replace(**changes)


class Pair:
    """A dialer and a listener; `run` carries bytes until neither has output."""

    def __init__(
        self, kind: Kind = Kind.PLAIN, key: Key = KEY, peer_key: Key = KEY, token: bytes = b""
    ) -> None:
        self.dialer = Handshake(Side.DIALER, key, identity("a"), kind, token=token)
        self.listener = Handshake(Side.LISTENER, peer_key, identity("b"))
        self.events: dict[Handshake, list[HandshakeEvent]] = {self.dialer: [], self.listener: []}

    @property
    def connector(self) -> Handshake:
        return self.dialer if self.dialer.connector else self.listener

    @property
    def acceptor(self) -> Handshake:
        return self.listener if self.dialer.connector else self.dialer

    def run(self, chunk: int = 1 << 20) -> None:
        ends = ((self.dialer, self.listener), (self.listener, self.dialer))
        moved = True
        while moved:
            moved = False
            for source, target in ends:
                data = source.output()
                moved |= bool(data)
                for at in range(0, len(data), chunk):
                    self.events[target] += target.receive(data[at : at + chunk])

    def take(self, side: Handshake) -> list[HandshakeEvent]:
        taken, self.events[side] = self.events[side], []
        return taken

    def report(self, side: Handshake, reason: str | None = None) -> None:
        """Report that the lanes of `side` are up, or that they failed for `reason`."""
        self.events[side] += side.lane_up() if reason is None else side.lane_failed(reason)

    def introduce(self) -> None:
        self.run()
        (introduced,) = self.take(self.listener)
        assert isinstance(introduced, Introduced)
        self.listener.welcome()
        self.run()
        (welcomed,) = self.take(self.dialer)
        assert isinstance(welcomed, Welcomed)

    def propose(self, *transports: str) -> None:
        candidates = tuple(Candidate(name, 1, b"at-" + name.encode()) for name in transports)
        self.connector.propose(Proposal(candidates, (("ib", "no device (here)"),)))
        self.run()
        (proposed,) = self.take(self.acceptor)
        assert isinstance(proposed, Proposed)
        assert proposed.proposal.candidates == candidates

    def answer(self, candidate: int) -> None:
        self.acceptor.answer((Choice(candidate, b"here"),))
        self.run()
        (answered,) = self.take(self.connector)
        assert isinstance(answered, Answered)

    def to_trial(self) -> None:
        self.introduce()
        self.propose("shm", "tcp")
        self.answer(0)


def sealed_size(frame: frames.Frame) -> int:
    return len(frames.encode(frame)) + limits.MAC_SIZE
