"""The transition tables of the control plane as data, and `step`, which looks a transition up.

These tables alone decide which transitions are legal; they do not depend on the side of a link, do
no I/O, and hold no lock. An event without a transition raises `LocalProtocolError`;
`Handshake.receive`, the only place where bytes of the peer arrive, turns it into
`RemoteProtocolError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeVar

from pscompy.errors import ProtocolError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class LocalProtocolError(Exception):
    """This process did something that the state does not allow: a defect of pscompy."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the state, or the format, does not allow."""


class _Row(Enum):
    """A key of the tables, hashed as an object: the hash of Enum is written in Python, and several
    times as slow."""

    __hash__ = object.__hash__


class LinkState(_Row):
    """The frame or event that a precon link awaits next."""

    HELLO = auto()  # the peer's greeting, of fixed size
    PROOF = auto()  # the peer's proof that it has the key
    INTRO = auto()  # the dialer's identity, and the kind of the link
    WELCOME = auto()  # the listener's identity, if it accepts the link
    PARKED = auto()  # an offer on a parked link, used if the other link with the same peer fails
    OFFER = auto()  # the connector's candidates
    ANSWER = auto()  # the acceptor's choice of lanes, or none
    TRIAL = auto()  # the reports of both sides on their lanes
    GUARD = auto()  # the link awaits nothing; if it breaks, the peer has died
    ANSWER_AGAIN = auto()  # as ANSWER, for a lane in place of one that the connection has lost
    TRIAL_AGAIN = auto()  # as TRIAL, for a lane in place of a lost one
    CLOSED = auto()


class LinkEvent(_Row):
    """An event on a link, the same whether a frame was sent or received."""

    HELLO = auto()
    PROOF = auto()
    INTRO = auto()
    WELCOME = auto()
    CROSSED = auto()
    OFFER = auto()
    ANSWER = auto()
    NO_ANSWER = auto()  # no candidate is left
    REPORT = auto()
    TRIAL_FAILED = auto()  # the candidate failed on both sides; the next candidate follows
    ESTABLISHED = auto()
    CLOSING = auto()
    END = auto()  # bye, refusal, end of file, error


LINK: Mapping[LinkState, Mapping[LinkEvent, LinkState]] = {
    LinkState.HELLO: {LinkEvent.HELLO: LinkState.PROOF},
    LinkState.PROOF: {LinkEvent.PROOF: LinkState.INTRO},
    LinkState.INTRO: {LinkEvent.INTRO: LinkState.WELCOME},
    LinkState.WELCOME: {
        LinkEvent.WELCOME: LinkState.OFFER,
        LinkEvent.CROSSED: LinkState.PARKED,
    },
    LinkState.PARKED: {LinkEvent.OFFER: LinkState.ANSWER},
    LinkState.OFFER: {LinkEvent.OFFER: LinkState.ANSWER},
    LinkState.ANSWER: {
        LinkEvent.ANSWER: LinkState.TRIAL,
        LinkEvent.NO_ANSWER: LinkState.CLOSED,
    },
    LinkState.TRIAL: {
        LinkEvent.REPORT: LinkState.TRIAL,
        LinkEvent.TRIAL_FAILED: LinkState.ANSWER,
        LinkEvent.ESTABLISHED: LinkState.GUARD,
    },
    LinkState.GUARD: {
        LinkEvent.CLOSING: LinkState.GUARD,
        LinkEvent.OFFER: LinkState.ANSWER_AGAIN,
    },
    LinkState.ANSWER_AGAIN: {
        LinkEvent.CLOSING: LinkState.ANSWER_AGAIN,
        LinkEvent.ANSWER: LinkState.TRIAL_AGAIN,
        LinkEvent.NO_ANSWER: LinkState.GUARD,
    },
    LinkState.TRIAL_AGAIN: {
        LinkEvent.CLOSING: LinkState.TRIAL_AGAIN,
        LinkEvent.REPORT: LinkState.TRIAL_AGAIN,
        LinkEvent.TRIAL_FAILED: LinkState.GUARD,
        LinkEvent.ESTABLISHED: LinkState.GUARD,
    },
    LinkState.CLOSED: {},
}


class Report(_Row):
    """The last report of one side on the lanes of the current attempt."""

    NOTHING = auto()
    UP = auto()
    GO = auto()  # the lanes of both sides are up; this report is never taken back
    FAILED = auto()


# The reports of each side follow this table. A failure is always answered by a failure, so that
# both sides know when an attempt has ended; after GO the only failure is such an answer.
REPORT: Mapping[Report, Mapping[Report, Report]] = {
    Report.NOTHING: {Report.UP: Report.UP, Report.FAILED: Report.FAILED},
    Report.UP: {Report.GO: Report.GO, Report.FAILED: Report.FAILED},
    Report.GO: {Report.FAILED: Report.FAILED},
    Report.FAILED: {},
}


class Phase(_Row):
    """The phase of a connection's record, from lazy to closed."""

    LAZY = auto()  # not used yet
    DIALING = auto()  # this side makes a link, and is the connector
    CALLING = auto()  # this side makes a link, and asks the peer to be the connector
    NEGOTIATING = auto()  # one link is in use, lanes are coming up
    UP = auto()
    CLOSED = auto()


class PhaseEvent(_Row):
    DIAL = auto()
    CALL = auto()
    TAKE = auto()  # a link was made by either side, and the connection is negotiated on it
    ESTABLISHED = auto()
    GAVE_UP = auto()  # connecting failed; the next use tries again
    ENDED = auto()  # closed, or the peer was lost


PHASE: Mapping[Phase, Mapping[PhaseEvent, Phase]] = {
    Phase.LAZY: {
        PhaseEvent.DIAL: Phase.DIALING,
        PhaseEvent.CALL: Phase.CALLING,
        PhaseEvent.TAKE: Phase.NEGOTIATING,
        PhaseEvent.ENDED: Phase.CLOSED,
    },
    Phase.DIALING: {
        PhaseEvent.TAKE: Phase.NEGOTIATING,
        PhaseEvent.GAVE_UP: Phase.LAZY,
        PhaseEvent.ENDED: Phase.CLOSED,
    },
    Phase.CALLING: {
        PhaseEvent.TAKE: Phase.NEGOTIATING,
        PhaseEvent.GAVE_UP: Phase.LAZY,
        PhaseEvent.ENDED: Phase.CLOSED,
    },
    Phase.NEGOTIATING: {
        PhaseEvent.ESTABLISHED: Phase.UP,
        PhaseEvent.DIAL: Phase.DIALING,  # the link broke: try again
        PhaseEvent.CALL: Phase.CALLING,
        PhaseEvent.TAKE: Phase.NEGOTIATING,  # the link broke, and a parked link is used
        PhaseEvent.GAVE_UP: Phase.LAZY,
        PhaseEvent.ENDED: Phase.CLOSED,
    },
    Phase.UP: {PhaseEvent.ENDED: Phase.CLOSED},
    Phase.CLOSED: {},
}


class Verdict(Enum):
    """How to treat a link on which a peer was introduced."""

    TAKE = auto()  # negotiate on this link
    CROSS = auto()  # this side is connecting already: park the peer's link
    LATER = auto()  # an older link of that peer has not ended yet: the peer tries again
    GONE = auto()  # this connection was closed here


# Verdict on a CALL, by phase: the peer asks this side, of the lower name, to be the connector.
ON_CALL: Mapping[Phase, Verdict] = {
    Phase.LAZY: Verdict.TAKE,
    Phase.DIALING: Verdict.CROSS,
    Phase.CALLING: Verdict.LATER,  # impossible: the side with the lower name never calls
    Phase.NEGOTIATING: Verdict.CROSS,
    Phase.UP: Verdict.LATER,
    Phase.CLOSED: Verdict.GONE,
}

# Verdict on a link of the side with the lower name, the connector, by phase.
ON_CONNECT: Mapping[Phase, Verdict] = {
    Phase.LAZY: Verdict.TAKE,
    Phase.DIALING: Verdict.LATER,  # impossible: the side with the higher name only calls
    Phase.CALLING: Verdict.TAKE,  # the peer will park this side's own link
    Phase.NEGOTIATING: Verdict.LATER,
    Phase.UP: Verdict.LATER,
    Phase.CLOSED: Verdict.GONE,
}


def step(table: Mapping[S, Mapping[E, S]], state: S, event: E) -> S:
    """Return the state after `event`. Raises `LocalProtocolError` if the table has none."""
    after = table[state].get(event)
    if after is None:
        raise LocalProtocolError(f"{event.name} is not possible in state {state.name}")
    return after
