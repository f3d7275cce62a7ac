"""The precon protocol without I/O: bytes in, events out; calls in, bytes out.

The *dialer* has made the TCP connection, the *listener* has accepted it; the dialer greets first.
The kind of the precon decides which side proposes candidates (the *connector*) and which side
chooses (the *acceptor*): a dialer that ASKs is the acceptor of its own precon.

    dialer                          listener
    greeting            ->
                        <-          greeting (if no descriptor is left: says so, and ends)
    proof, Intro        ->
                        <-          proof, Welcome (or crossed, or Refuse); or no proof
    connector                       acceptor
    Proposal               ->
                        <-          Answer n (lanes of candidates not tried yet; none: the end)
    Report n UP        <->          Report n UP       FAILED from either: Answer n + 1 follows
    Report n LATE      <->          Report n LATE     from both: the same as FAILED
    Report n GO        <->          Report n GO       from both: the lanes carry messages
    Closing, Bye       <->          Closing, Bye      the precon stays open as the guard until then

While the precon is the guard, the connector may propose a lane in place of one that the connection
has lost. An answer and reports follow as above; after an answer without lanes, or a trial that
fails, the precon is the guard again.

If the guard of a connection over several rails ends, but not the connection, its dialer makes
another precon, of Kind.GUARD, with the `guard_token` of the connection's first precon. The new
precon is the guard as soon as the listener has welcomed it.

`receive` raises a `PscomError` if the peer breaks the protocol or holds another key. The precon has
ended then, but `output()` may still return bytes by which the peer learns the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from pscompy.control.handshake import frames, greeting, limits
from pscompy.control.handshake.events import (
    Answered,
    Ended,
    Established,
    HandshakeEvent,
    Introduced,
    PeerClosing,
    Proposed,
    Refused,
    Welcomed,
)
from pscompy.control.handshake.frames import Frame, Kind, RefuseCode
from pscompy.control.handshake.greeting import Hello
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.keys import Key
from pscompy.control.handshake.sealed_stream import SealedStream
from pscompy.control.handshake.states import LINK, PreconEvent, PreconState, Report
from pscompy.control.handshake.tables import LocalProtocolError, RemoteProtocolError, step
from pscompy.control.handshake.trial import CheckLanes, Outcome, Trial

NO_DESCRIPTOR = (
    "it has no descriptor left for one more connection (RLIMIT_NOFILE there, which `ulimit -n`"
    " raises)"
)


class Side(Enum):
    DIALER = auto()
    LISTENER = auto()


class Handshake:
    """One side of one precon."""

    def __init__(
        self,
        side: Side,
        key: Key,
        identity: Identity,
        kind: Kind | None = None,
        versions: tuple[int, int] = (limits.VERSION_MIN, limits.VERSION_MAX),
        token: bytes = b"",
    ) -> None:
        """The dialer gives the `kind` of its precon, and for Kind.GUARD the `token`; the listener
        learns them from the dialer's introduction."""
        self.side = side
        self.state = PreconState.HELLO
        self.kind = kind
        self.peer: Identity | None = None
        # the owner sets a function that returns why a lane failed; `str` returns "": none has
        # failed
        self.check_lanes: CheckLanes = str
        self._token = token
        self.identity = identity  # this side's identity; may change until it is sent
        self._stream = SealedStream(side is Side.DIALER, key, versions)
        # the candidates of the proposal that were not chosen yet, by index
        self._untried: dict[int, frames.Candidate] = {}
        self._trial = self._new_trial(0)
        if side is Side.DIALER:
            self._stream.send_hello()

    # ---- questions of the owner ----

    @property
    def authenticated(self) -> bool:
        return self.state not in (PreconState.HELLO, PreconState.PROOF)

    @property
    def trying(self) -> bool:
        """Whether lanes are coming up."""
        return self.state in (PreconState.TRIAL, PreconState.TRIAL_AGAIN)

    @property
    def guards(self) -> bool:
        """Whether the precon is the guard of a connection whose lanes have come up."""
        return self.state in _GUARDS

    @property
    def connector(self) -> bool:
        """Whether this side proposes candidates; known once `kind` is known."""
        return (self.kind is not Kind.ASK) == (self.side is Side.DIALER)

    @property
    def attempt(self) -> int:
        """The number of the current attempt to bring lanes up; 0 before the first."""
        return self._trial.number

    def output(self) -> bytes:
        """Return the bytes to send now; each is returned once."""
        return self._stream.output()

    def lane_token(self, lane: int) -> bytes:
        """Return the one-time token of a lane of the current attempt."""
        return self._stream.lane_token(self.attempt, lane)

    def guard_token(self) -> bytes:
        """Return the token that names this precon's connection when another precon is to guard it.
        Only the two sides of this precon know the token."""
        return self._stream.lane_token(0, 0)  # there is no attempt 0

    # ---- calls of the owner ----

    def welcome(self) -> None:
        """Agree to the precon of a dialer that was introduced."""
        self._require(Side.LISTENER)
        self._step(self._welcomed())
        self._stream.send(frames.Welcome(self.identity))

    def cross(self) -> None:
        """Park (keep in reserve) the precon of a dialer that this process is already connecting
        to."""
        self._require(Side.LISTENER)
        self._step(PreconEvent.CROSSED)
        self._stream.send(frames.Welcome(self.identity, crossed=True))

    def refuse(self, code: RefuseCode, reason: str) -> None:
        """End the precon and send the reason."""
        if not self.authenticated:
            raise LocalProtocolError("nothing is sent to a peer that has not proved the key")
        self._stream.send(frames.Refuse(code, reason))
        self.state = PreconState.CLOSED

    def propose(self, proposal: frames.Proposal) -> None:
        """Send the connector's candidates."""
        if not self.connector:
            raise LocalProtocolError("only the connector proposes")
        self._step(PreconEvent.PROPOSAL)
        self._untried = dict(enumerate(proposal.candidates))
        self._stream.send(proposal)

    def answer(
        self,
        lanes: tuple[frames.Choice, ...],
        rejected: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Choose lanes of the proposal. Without lanes the precon ends, unless it guards a
        connection."""
        if self.connector:
            raise LocalProtocolError("only the acceptor answers")
        self._step(PreconEvent.ANSWER if lanes else PreconEvent.NO_ANSWER)
        self._trial = self._new_trial(self.attempt + 1)
        self._stream.send(frames.Answer(self.attempt, lanes, rejected))

    def lane_up(self) -> list[HandshakeEvent]:
        """Report that all lanes are up on this side. Has no effect if the attempt has failed."""
        if self._trial.here is Report.FAILED:
            return []
        self._require_trial()
        return self._conclude(self._trial.up(self.check_lanes))

    def lane_failed(self, reason: str) -> list[HandshakeEvent]:
        """Report that a lane of this attempt failed on this side. Has no effect after this side's
        last report."""
        if not self._trial.final:
            self._require_trial()
        return self._conclude(self._trial.failed(reason))

    def lane_late(self, why: str) -> list[HandshakeEvent]:
        """Report that the time for this attempt has passed on this side. The attempt fails once the
        peer reports the same: a busy peer may not have begun to wait. `why`: what blocks the lanes
        here, if that is known."""
        return self._conclude(self._trial.late(why))

    def closing(self) -> None:
        """Let the peer know that this side's last message is in flight on the lanes."""
        self._step(PreconEvent.CLOSING)
        self._stream.send(frames.Closing())

    def bye(self) -> None:
        """End the precon on purpose; the caller closes it after the output is sent."""
        if self.authenticated and self.state is not PreconState.CLOSED:
            self._stream.send(frames.Bye())
        self.state = PreconState.CLOSED

    # ---- input ----

    def receive(self, data: bytes) -> list[HandshakeEvent]:
        """Take bytes that have arrived; none means that the peer has ended the precon."""
        if self.state is PreconState.CLOSED:
            return []
        if not data:
            return self._end(bye=False)
        self._stream.feed(data)
        try:
            return list(self._events())
        except LocalProtocolError as error:
            self.state = PreconState.CLOSED
            raise RemoteProtocolError(str(error)) from error
        except Exception:
            self.state = PreconState.CLOSED
            raise

    def _events(self) -> Iterator[HandshakeEvent]:
        while self.state is not PreconState.CLOSED:
            take, handle = _PIECES.get(self.state, _FRAMES)
            piece = take(self._stream)
            if piece is None:
                return
            yield from handle(self, piece)

    def _on_hello(self, hello: Hello) -> Iterator[HandshakeEvent]:
        if self.side is Side.LISTENER:
            # sent even if an error follows, so that the dialer learns the reason
            self._stream.send_hello()
        self._stream.compare(hello)
        if self.side is Side.DIALER and hello.flags & greeting.FLAG_FULL:
            self.state = PreconState.CLOSED
            yield Refused(RefuseCode.FULL, NO_DESCRIPTOR)
            return
        self._stream.derive(hello)
        self._step(PreconEvent.HELLO)
        if self.side is Side.DIALER:
            self._stream.send_proof()
            self._introduce()

    def _introduce(self) -> None:
        if self.kind is None:
            raise LocalProtocolError("a dialer must give the kind of its precon")
        self._stream.send(frames.Intro(self.kind, self.identity, self._token))

    def _on_proof(self, proof: bytes) -> Iterator[HandshakeEvent]:
        self._stream.check_proof(proof)
        self._step(PreconEvent.PROOF)
        if self.side is Side.LISTENER:
            self._stream.send_proof()
        else:
            self._step(PreconEvent.INTRO)  # the introduction was sent with the proof
        return iter(())

    def _on_frame(self, frame: Frame) -> Iterator[HandshakeEvent]:
        handler: Callable[..., Iterator[HandshakeEvent]] = _HANDLERS[type(frame)]
        return handler(self, frame)

    def _on_intro(self, frame: frames.Intro) -> Iterator[HandshakeEvent]:
        self._require(Side.LISTENER)
        self._step(PreconEvent.INTRO)
        self.kind, self.peer = frame.kind, frame.identity
        yield Introduced(frame.kind, frame.identity, frame.token)

    def _on_welcome(self, frame: frames.Welcome) -> Iterator[HandshakeEvent]:
        self._require(Side.DIALER)
        if frame.crossed and self.kind is not Kind.ASK:
            raise RemoteProtocolError("only an ASK can be crossed")
        self._step(PreconEvent.CROSSED if frame.crossed else self._welcomed())
        self.peer = frame.identity
        yield Welcomed(frame.identity, frame.crossed)

    def _on_proposal(self, frame: frames.Proposal) -> Iterator[HandshakeEvent]:
        if self.connector:
            raise RemoteProtocolError("a proposal from the acceptor")
        self._step(PreconEvent.PROPOSAL)
        yield Proposed(frame)

    def _on_answer(self, frame: frames.Answer) -> Iterator[HandshakeEvent]:
        if not self.connector:
            raise RemoteProtocolError("an answer from the connector")
        if frame.attempt != self.attempt + 1:
            raise RemoteProtocolError(f"answer {frame.attempt} after {self.attempt}")
        chosen = {lane.candidate for lane in frame.lanes}
        if len(chosen) < len(frame.lanes) or not chosen <= self._untried.keys():
            raise RemoteProtocolError(
                "an answer chooses a candidate that was not proposed, or was chosen before"
            )
        if len({self._untried.pop(index).rail_set for index in chosen}) > 1:
            raise RemoteProtocolError("an answer chooses candidates that do not go together")
        self._step(PreconEvent.ANSWER if frame.lanes else PreconEvent.NO_ANSWER)
        self._trial = self._new_trial(frame.attempt)
        yield Answered(frame)

    def _on_report(self, frame: frames.LaneReport) -> Iterator[HandshakeEvent]:
        if frame.attempt != self.attempt:
            raise RemoteProtocolError(f"report on attempt {frame.attempt} in {self.attempt}")
        self._step(PreconEvent.REPORT)
        yield from self._conclude(self._trial.on_report(frame, self.check_lanes))

    def _on_closing(self, frame: frames.Closing) -> Iterator[HandshakeEvent]:
        self._step(PreconEvent.CLOSING)
        yield PeerClosing()

    def _on_bye(self, frame: frames.Bye) -> Iterator[HandshakeEvent]:
        yield from self._end(bye=True)

    def _on_refuse(self, frame: frames.Refuse) -> Iterator[HandshakeEvent]:
        self.state = PreconState.CLOSED
        yield Refused(frame.code, frame.reason)

    def _end(self, bye: bool) -> list[HandshakeEvent]:
        state, self.state = self.state, PreconState.CLOSED
        return [Ended(bye, state)]

    # ---- states ----

    def _new_trial(self, number: int) -> Trial:
        return Trial(number, self._stream.send)

    def _conclude(self, outcome: Outcome) -> list[HandshakeEvent]:
        if outcome is None:
            return []
        established = isinstance(outcome, Established)
        self._step(PreconEvent.ESTABLISHED if established else PreconEvent.TRIAL_FAILED)
        return [outcome]

    def _step(self, event: PreconEvent) -> None:
        self.state = step(LINK, self.state, event)

    def _welcomed(self) -> PreconEvent:
        return PreconEvent.RENEWED if self.kind is Kind.GUARD else PreconEvent.WELCOME

    def _require(self, side: Side) -> None:
        if self.side is not side:
            raise LocalProtocolError(f"not for the {self.side.name.lower()}")

    def _require_trial(self) -> None:
        if not self.trying:
            raise LocalProtocolError(f"no lanes to report on in state {self.state.name}")


_GUARDS = (PreconState.GUARD, PreconState.ANSWER_AGAIN, PreconState.TRIAL_AGAIN)

# The functions that take the next piece of input from the stream, and that handle it. Only the
# states in _PIECES await another piece than a frame.
_Piece = tuple[Callable[[SealedStream], Any], Callable[[Handshake, Any], Iterator[HandshakeEvent]]]
_FRAMES: _Piece = (SealedStream.take_frame, Handshake._on_frame)
_PIECES: dict[PreconState, _Piece] = {
    PreconState.HELLO: (SealedStream.take_hello, Handshake._on_hello),
    PreconState.PROOF: (SealedStream.take_proof, Handshake._on_proof),
}

_HANDLERS: dict[type[Frame], Callable[..., Iterator[HandshakeEvent]]] = {
    frames.Intro: Handshake._on_intro,
    frames.Welcome: Handshake._on_welcome,
    frames.Proposal: Handshake._on_proposal,
    frames.Answer: Handshake._on_answer,
    frames.LaneReport: Handshake._on_report,
    frames.Closing: Handshake._on_closing,
    frames.Bye: Handshake._on_bye,
    frames.Refuse: Handshake._on_refuse,
}
