"""The transition tables of the control plane, as data, and the one `step` through them.

Everything that decides which transition is legal lives here; nothing here knows which side of a
link it is on, does I/O, or holds a lock. An event that the table does not know is an error of
whoever caused it: raised as `LocalProtocolError`, and translated into `RemoteProtocolError` at
the single place where bytes of the peer come in (`Handshake.receive`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeVar

from pscompy.errors import ProtocolError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class LocalProtocolError(Exception):
    """This process asked for something that the state does not allow: a bug of ours."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the state, or the format, does not allow."""


class LinkState(Enum):
    """What a precon link waits for next."""

    HELLO = auto()  # fixed-size greeting of the peer
    PROOF = auto()  # that the peer knows the key
    INTRO = auto()  # what the dialer wants, and who it is
    WELCOME = auto()  # who the listener is, and whether it agrees
    PARKED = auto()  # crossed: kept as a way back until the other link has come up
    OFFER = auto()  # the connector's candidates
    ANSWER = auto()  # the acceptor's choice, or that there is none
    TRIAL = auto()  # both sides' lanes to come up
    GUARD = auto()  # nothing: its end tells that the peer died
    CLOSED = auto()


class LinkEvent(Enum):
    """What has happened on a link, sent or received alike."""

    HELLO = auto()
    PROOF = auto()
    INTRO = auto()
    WELCOME = auto()
    CROSSED = auto()
    OFFER = auto()
    ANSWER = auto()
    NO_ANSWER = auto()  # no candidate is left
    REPORT = auto()
    TRIAL_FAILED = auto()  # on both sides; the next candidate
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
    LinkState.GUARD: {LinkEvent.CLOSING: LinkState.GUARD},
    LinkState.CLOSED: {},
}


class Report(Enum):
    """What one side has said about the lanes of the attempt at hand."""

    NOTHING = auto()
    UP = auto()
    GO = auto()  # it knows that both are up, and takes nothing back any more
    FAILED = auto()


# Each side walks this table by itself. A failure is always answered by a failure, so both sides
# know when an attempt is over; after GO the only failure is such an answer.
REPORT: Mapping[Report, Mapping[Report, Report]] = {
    Report.NOTHING: {Report.UP: Report.UP, Report.FAILED: Report.FAILED},
    Report.UP: {Report.GO: Report.GO, Report.FAILED: Report.FAILED},
    Report.GO: {Report.FAILED: Report.FAILED},
    Report.FAILED: {},
}


class Phase(Enum):
    """How far a peer's record has come on its way to a connection."""

    LAZY = auto()  # nobody has used it yet
    DIALING = auto()  # our own link is on its way, with us as the connector
    CALLING = auto()  # our own link asks the peer to be the connector
    NEGOTIATING = auto()  # one link was chosen, lanes are being made
    UP = auto()
    CLOSED = auto()


class PhaseEvent(Enum):
    DIAL = auto()
    CALL = auto()
    TAKE = auto()  # a link was chosen
    ESTABLISHED = auto()
    GAVE_UP = auto()  # nothing worked; the next use tries again
    ENDED = auto()  # closed in order, or the peer was lost


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
        PhaseEvent.TAKE: Phase.NEGOTIATING,  # the link broke and a parked one is left
        PhaseEvent.GAVE_UP: Phase.LAZY,
        PhaseEvent.ENDED: Phase.CLOSED,
    },
    Phase.UP: {PhaseEvent.ENDED: Phase.CLOSED},
    Phase.CLOSED: {},
}


class Verdict(Enum):
    """What to do with a link of a peer that arrives."""

    TAKE = auto()  # negotiate on it
    CROSS = auto()  # we are connecting already: park it
    LATER = auto()  # an older link of that peer has not ended yet: let it try again
    GONE = auto()  # this connection was closed here


# A caller asks us, the side with the lower name, to be the connector.
ON_CALL: Mapping[Phase, Verdict] = {
    Phase.LAZY: Verdict.TAKE,
    Phase.DIALING: Verdict.CROSS,
    Phase.CALLING: Verdict.LATER,  # cannot be: the lower side never calls
    Phase.NEGOTIATING: Verdict.CROSS,
    Phase.UP: Verdict.LATER,
    Phase.CLOSED: Verdict.GONE,
}

# The side with the lower name connects to us.
ON_CONNECT: Mapping[Phase, Verdict] = {
    Phase.LAZY: Verdict.TAKE,
    Phase.DIALING: Verdict.LATER,  # cannot be: the higher side never dials
    Phase.CALLING: Verdict.TAKE,  # ours will be crossed
    Phase.NEGOTIATING: Verdict.LATER,
    Phase.UP: Verdict.LATER,
    Phase.CLOSED: Verdict.GONE,
}


def step(table: Mapping[S, Mapping[E, S]], state: S, event: E) -> S:
    """The state after `event`; `LocalProtocolError` where the table has none."""
    after = table[state].get(event)
    if after is None:
        raise LocalProtocolError(f"{event.name} is not possible in state {state.name}")
    return after
