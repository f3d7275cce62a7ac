"""The precon protocol as a machine without I/O: bytes in, events out; calls in, bytes out.

The *dialer* made the TCP link, the *listener* took it; that decides who greets first. Who offers
candidates (the *connector*) and who picks (the *acceptor*) is decided by the kind of the link: a
dialer that CALLs is the acceptor of its own link.

    dialer                          listener
    greeting            ->
                        <-          greeting (which may say: no descriptor is left, the end)
    proof, Intro        ->
                        <-          proof, Welcome (or crossed, or Refuse); or no proof
    connector                       acceptor
    Offer               ->
                        <-          Answer n (lanes of fresh candidates, or none: the end)
    Report n UP        <->          Report n UP       either may say FAILED: next Answer, n + 1
    Report n LATE      <->          Report n LATE     both have: as if both had said FAILED
    Report n GO        <->          Report n GO       both: the lanes carry messages
    Closing, Bye       <->          Closing, Bye      the link stays open as guard until then

`receive` raises a `PscomError` when the peer breaks the rules or holds another key; the link is
over then, but `output()` may still hold bytes that let the peer find out why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import NoReturn

from pscompy.control.handshake import frames
from pscompy.control.handshake.auth import Seal, Secrets
from pscompy.control.handshake.events import (
    Answered,
    Ended,
    Established,
    HandshakeEvent,
    Introduced,
    Offered,
    PeerClosing,
    Refused,
    TrialFailed,
    Welcomed,
)
from pscompy.control.handshake.frames import Frame, Hello, Identity, Kind, RefuseCode, Said
from pscompy.control.handshake.keys import Key
from pscompy.control.handshake.states import (
    LINK,
    REPORT,
    LinkEvent,
    LinkState,
    LocalProtocolError,
    RemoteProtocolError,
    Report,
    step,
)
from pscompy.errors import AuthError, VersionMismatch

NO_DESCRIPTOR = (
    "it has no descriptor left for one more connection (RLIMIT_NOFILE there, which `ulimit -n`"
    " raises)"
)


def full_greeting() -> bytes:
    """The greeting of a listener that has no descriptor left for a dialer, before it hangs up."""
    return Hello(os.urandom(frames.NONCE_SIZE), flags=frames.FLAG_FULL).pack()


class Side(Enum):
    DIALER = auto()
    LISTENER = auto()


class Handshake:
    """One side of one precon link."""

    def __init__(
        self,
        side: Side,
        key: Key,
        identity: Identity,
        kind: Kind | None = None,
        versions: tuple[int, int] = (frames.VERSION_MIN, frames.VERSION_MAX),
    ) -> None:
        """`kind` is the dialer's to give; the listener learns it."""
        self.side = side
        self.state = LinkState.HELLO
        self.kind = kind
        self.peer: Identity | None = None
        self.attempt = 0
        self._key = key
        self._identity = identity
        self._hello = Hello(os.urandom(frames.NONCE_SIZE), *versions)
        self._in = bytearray()
        self._out = bytearray()
        self._said = {True: Report.NOTHING, False: Report.NOTHING}  # here, there
        self._failure = ("", True)
        self._late: dict[bool, str] = {}  # who has waited long enough: why, as far as it knows
        self._left: set[int] = set()  # of the candidates that the connector has offered
        self.check_lanes: Callable[[], str] = str  # why the lanes do not stay up; "": they do
        self._secrets: Secrets
        self._seal: Seal
        self._check: Seal
        if side is Side.DIALER:
            self._out += self._hello.pack()

    # ---- what the owner asks ----

    @property
    def authenticated(self) -> bool:
        return self.state not in (LinkState.HELLO, LinkState.PROOF)

    @property
    def connector(self) -> bool:
        """Whether this side offers candidates; known once `kind` is."""
        return (self.kind is not Kind.CALL) == (self.side is Side.DIALER)

    def output(self) -> bytes:
        """Bytes to send now; each is handed out once."""
        data = bytes(self._out)
        self._out.clear()
        return data

    def lane_token(self, lane: int) -> bytes:
        """The one-time token of a lane of the attempt at hand."""
        return self._secrets.lane_token(self.attempt, lane)

    # ---- what the owner does ----

    def welcome(self) -> None:
        self._require(Side.LISTENER)
        self._step(LinkEvent.WELCOME)
        self._send(frames.Welcome(self._identity))

    def cross(self) -> None:
        """Park the link of a caller whom we are connecting to already."""
        self._require(Side.LISTENER)
        self._step(LinkEvent.CROSSED)
        self._send(frames.Welcome(self._identity, crossed=True))

    def refuse(self, code: RefuseCode, reason: str) -> None:
        """End the link and say why."""
        if not self.authenticated:
            raise LocalProtocolError("nothing is said to a peer that has not proved the key")
        self._send(frames.Refuse(code, reason))
        self.state = LinkState.CLOSED

    def offer(self, offer: frames.Offer) -> None:
        if not self.connector:
            raise LocalProtocolError("only the connector offers")
        self._step(LinkEvent.OFFER)
        self._left = set(range(len(offer.candidates)))
        self._send(offer)

    def answer(
        self,
        lanes: tuple[frames.Choice, ...],
        rejected: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Choose lanes of the offer, or none, which ends the link."""
        if self.connector:
            raise LocalProtocolError("only the acceptor answers")
        self._step(LinkEvent.ANSWER if lanes else LinkEvent.NO_ANSWER)
        self._begin_trial(self.attempt + 1)
        self._send(frames.Answer(self.attempt, lanes, rejected))

    def lane_up(self) -> list[HandshakeEvent]:
        """All lanes of this attempt are up here; nothing to say if it has fallen by then."""
        if self._said[True] is Report.FAILED:
            return []
        self._say(Report.UP)
        return list(self._advance())

    def lane_failed(self, reason: str) -> list[HandshakeEvent]:
        """A lane of this attempt failed here; nothing to say once both sides said GO."""
        self._fail(reason, here=True)
        return list(self._advance())

    def lane_late(self, why: str) -> list[HandshakeEvent]:
        """This side has given the attempt its time. The attempt fails once the peer says so, too:
        one that is busy has not begun to wait. `why`: what holds it up here, if that is known."""
        if self._said[True] in (Report.GO, Report.FAILED) or True in self._late:
            return []
        self._late[True] = why
        self._send(frames.LaneReport(self.attempt, Said.LATE, why))
        return list(self._advance())

    def closing(self) -> None:
        """Tell the peer that the in-band close is on its way."""
        self._step(LinkEvent.CLOSING)
        self._send(frames.Closing())

    def bye(self) -> None:
        """End the link in order; the caller closes it after the output is sent."""
        if self.authenticated and self.state is not LinkState.CLOSED:
            self._send(frames.Bye())
        self.state = LinkState.CLOSED

    # ---- what the peer does ----

    def receive(self, data: bytes) -> list[HandshakeEvent]:
        """Take what has arrived; empty: the peer has ended the link."""
        if self.state is LinkState.CLOSED:
            return []
        if not data:
            return self._end(bye=False)
        self._in += data
        try:
            return list(self._events())
        except LocalProtocolError as error:
            self.state = LinkState.CLOSED
            raise RemoteProtocolError(str(error)) from error
        except Exception:
            self.state = LinkState.CLOSED
            raise

    def _events(self) -> Iterator[HandshakeEvent]:
        while self.state is not LinkState.CLOSED:
            piece = self._take_piece()
            if piece is None:
                return
            if self.state is LinkState.HELLO:
                yield from self._on_hello(piece)
            elif self.state is LinkState.PROOF:
                self._on_proof(piece)
            else:
                yield from self._on_frame(frames.decode(piece))

    def _take_piece(self) -> bytes | None:
        """The next greeting, proof or frame without its seal, once it is complete."""
        if self.state is LinkState.HELLO:
            frames.check_magic(self._in)
            return self._take(frames.HELLO_SIZE)
        if self.state is LinkState.PROOF:
            return self._take(frames.MAC_SIZE)
        if len(self._in) < frames.HEADER_SIZE:
            return None
        size = frames.HEADER_SIZE + frames.body_size(self._in[: frames.HEADER_SIZE])
        sealed = self._take(size + frames.MAC_SIZE)
        if sealed is None:
            return None
        self._check.check(sealed[:size], sealed[size:])
        return sealed[:size]

    def _take(self, size: int) -> bytes | None:
        if len(self._in) < size:
            return None
        piece = bytes(self._in[:size])
        del self._in[:size]
        return piece

    def _on_hello(self, data: bytes) -> Iterator[HandshakeEvent]:
        hello = Hello.unpack(data)
        if self.side is Side.LISTENER:
            self._out += self._hello.pack()  # before any complaint: the peer shall see why
        self._compare(hello)
        if self.side is Side.DIALER and hello.flags & frames.FLAG_FULL:
            self.state = LinkState.CLOSED
            yield Refused(RefuseCode.FULL, NO_DESCRIPTOR)
            return
        self._derive(hello)
        self._step(LinkEvent.HELLO)
        if self.side is Side.DIALER:
            self._prove()
            self._introduce()

    def _compare(self, hello: Hello) -> None:
        ours = self._hello
        if max(ours.version_min, hello.version_min) > min(ours.version_max, hello.version_max):
            raise VersionMismatch(
                f"this side speaks versions {ours.version_min}...{ours.version_max} of the precon "
                f"protocol, the peer {hello.version_min}...{hello.version_max}"
            )
        if hello.nonce == ours.nonce:
            raise AuthError("the peer only mirrors what this side sends")

    def _derive(self, hello: Hello) -> None:
        ours, theirs = self._hello.pack(), hello.pack()
        dialer = self.side is Side.DIALER
        both = (ours, theirs) if dialer else (theirs, ours)
        derived = Secrets.derive(self._key.secret, *both)
        keys = (derived.dialer, derived.listener)
        self._secrets = derived
        self._seal = Seal(keys[not dialer], derived.transcript)
        self._check = Seal(keys[dialer], derived.transcript)

    def _on_proof(self, data: bytes) -> None:
        try:
            self._check.check(b"proof", data)
        except RemoteProtocolError:
            self._reject(data)
        self._step(LinkEvent.PROOF)
        if self.side is Side.LISTENER:
            self._prove()
        else:
            self._step(LinkEvent.INTRO)  # was sent with the proof

    def _reject(self, proof: bytes) -> NoReturn:
        """The proof is wrong; a listener says that much. One that does not even accept ours has
        not proved that it could."""
        if self.side is Side.LISTENER:
            self._out += frames.WRONG_PROOF
        elif proof != frames.WRONG_PROOF:
            raise AuthError("the peer does not prove that it holds the key") from None
        raise AuthError(
            f"the peer holds another key; this side's comes from {self._key.origin} "
            "(PSP_KEY or PSP_KEY_FILE sets one)"
        ) from None

    def _prove(self) -> None:
        self._out += self._seal.proof()

    def _introduce(self) -> None:
        if self.kind is None:
            raise LocalProtocolError("a dialer says what it wants")
        self._send(frames.Intro(self.kind, self._identity))

    def _on_frame(self, frame: Frame) -> Iterator[HandshakeEvent]:
        handler: Callable[..., Iterator[HandshakeEvent]] = _HANDLERS[type(frame)]
        return handler(self, frame)

    def _on_intro(self, frame: frames.Intro) -> Iterator[HandshakeEvent]:
        self._require(Side.LISTENER)
        self._step(LinkEvent.INTRO)
        self.kind, self.peer = frame.kind, frame.identity
        yield Introduced(frame.kind, frame.identity)

    def _on_welcome(self, frame: frames.Welcome) -> Iterator[HandshakeEvent]:
        self._require(Side.DIALER)
        if frame.crossed and self.kind is not Kind.CALL:
            raise RemoteProtocolError("only a call can be crossed")
        self._step(LinkEvent.CROSSED if frame.crossed else LinkEvent.WELCOME)
        self.peer = frame.identity
        yield Welcomed(frame.identity, frame.crossed)

    def _on_offer(self, frame: frames.Offer) -> Iterator[HandshakeEvent]:
        if self.connector:
            raise RemoteProtocolError("an offer from the acceptor")
        self._step(LinkEvent.OFFER)
        yield Offered(frame)

    def _on_answer(self, frame: frames.Answer) -> Iterator[HandshakeEvent]:
        if not self.connector:
            raise RemoteProtocolError("an answer from the connector")
        if frame.attempt != self.attempt + 1:
            raise RemoteProtocolError(f"answer {frame.attempt} after {self.attempt}")
        chosen = {lane.candidate for lane in frame.lanes}
        if len(chosen) < len(frame.lanes) or not chosen <= self._left:
            raise RemoteProtocolError("an answer chooses what was not offered, or chosen before")
        self._left -= chosen
        self._step(LinkEvent.ANSWER if frame.lanes else LinkEvent.NO_ANSWER)
        self._begin_trial(frame.attempt)
        yield Answered(frame)

    def _on_report(self, frame: frames.LaneReport) -> Iterator[HandshakeEvent]:
        if frame.attempt != self.attempt:
            raise RemoteProtocolError(f"report on attempt {frame.attempt} in {self.attempt}")
        self._step(LinkEvent.REPORT)
        if frame.said is Said.LATE:
            self._late[False] = frame.reason
            yield from self._advance()
            return
        if frame.said is Said.FAILED:
            self._remember_failure(frame.reason, here=False)
        elif frame.said is Said.GO and self._said[True] is Report.NOTHING:
            raise RemoteProtocolError("GO before this side's lanes are up")
        self._note(Report[frame.said.name], here=False)
        yield from self._advance()

    def _on_closing(self, frame: frames.Closing) -> Iterator[HandshakeEvent]:
        self._step(LinkEvent.CLOSING)
        yield PeerClosing()

    def _on_bye(self, frame: frames.Bye) -> Iterator[HandshakeEvent]:
        yield from self._end(bye=True)

    def _on_refuse(self, frame: frames.Refuse) -> Iterator[HandshakeEvent]:
        self.state = LinkState.CLOSED
        yield Refused(frame.code, frame.reason)

    def _end(self, bye: bool) -> list[HandshakeEvent]:
        state, self.state = self.state, LinkState.CLOSED
        return [Ended(bye, state)]

    # ---- one attempt ----

    def _begin_trial(self, attempt: int) -> None:
        self.attempt = attempt
        self._said = {True: Report.NOTHING, False: Report.NOTHING}
        self._failure = ("", True)
        self._late = {}

    def _advance(self) -> Iterator[HandshakeEvent]:
        """What follows from what both sides have said so far."""
        if len(self._late) == len(self._said):
            ours = bool(self._late[True]) or not self._late[False]
            self._fail(_too_late(self._late[ours]), ours)
        here, there = self._said[True], self._said[False]
        if there is Report.FAILED and here is not Report.FAILED:
            self._say(Report.FAILED)
        elif here is Report.UP and there in (Report.UP, Report.GO):
            if failure := self.check_lanes():  # since they came up; GO is never taken back
                self._fail(failure, here=True)
            else:
                self._say(Report.GO)
        here = self._said[True]
        if here is there is Report.FAILED:
            self._step(LinkEvent.TRIAL_FAILED)
            yield TrialFailed(self.attempt, *self._failure)
        elif here is there is Report.GO:
            self._step(LinkEvent.ESTABLISHED)
            yield Established(self.attempt)

    def _fail(self, reason: str, here: bool) -> None:
        if self._said[True] in (Report.GO, Report.FAILED):
            return
        self._remember_failure(reason, here)
        self._say(Report.FAILED, reason)

    def _remember_failure(self, reason: str, here: bool) -> None:
        if not self._failure[0]:
            self._failure = (reason or "no reason given", here)

    def _say(self, report: Report, reason: str = "") -> None:
        if self.state is not LinkState.TRIAL:
            raise LocalProtocolError(f"no lanes to report on in state {self.state.name}")
        self._note(report, here=True)
        self._send(frames.LaneReport(self.attempt, Said[report.name], reason))

    def _note(self, report: Report, here: bool) -> None:
        """Walk the report table."""
        if report not in REPORT[self._said[here]]:
            raise LocalProtocolError(f"{report.name} after {self._said[here].name}")
        self._said[here] = REPORT[self._said[here]][report]

    # ---- below ----

    def _step(self, event: LinkEvent) -> None:
        self.state = step(LINK, self.state, event)

    def _require(self, side: Side) -> None:
        if self.side is not side:
            raise LocalProtocolError(f"not for the {self.side.name.lower()}")

    def _send(self, frame: Frame) -> None:
        content = frames.encode(frame)
        self._out += content + self._seal.next(content)


def _too_late(why: str) -> str:
    return "did not come up in time (PSP_CANDIDATE_TIMEOUT)" + (f": {why}" if why else "")


_HANDLERS: dict[type[Frame], Callable[..., Iterator[HandshakeEvent]]] = {
    frames.Intro: Handshake._on_intro,
    frames.Welcome: Handshake._on_welcome,
    frames.Offer: Handshake._on_offer,
    frames.Answer: Handshake._on_answer,
    frames.LaneReport: Handshake._on_report,
    frames.Closing: Handshake._on_closing,
    frames.Bye: Handshake._on_bye,
    frames.Refuse: Handshake._on_refuse,
}
