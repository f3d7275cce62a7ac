"""The transition tables of a precon and of the reports on its lanes.

These tables alone decide which transitions are legal; they do not depend on the side of a precon,
do no I/O, and hold no lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import auto

from pscompy.control.handshake.tables import Row


class PreconState(Row):
    """The frame or event that a precon awaits next."""

    HELLO = auto()  # the peer's greeting, of fixed size
    PROOF = auto()  # the peer's proof that it has the key
    INTRO = auto()  # the dialer's identity, and the kind of the precon
    WELCOME = auto()  # the listener's identity, if it accepts the precon
    # a proposal on a parked precon, used if the other precon with the same peer fails
    PARKED = auto()
    PROPOSAL = auto()  # the connector's candidates
    ANSWER = auto()  # the acceptor's choice of lanes, or none
    TRIAL = auto()  # the reports of both sides on their lanes
    GUARD = auto()  # the precon awaits nothing; if it breaks, the peer has died
    ANSWER_AGAIN = auto()  # as ANSWER, for a lane in place of one that the connection has lost
    TRIAL_AGAIN = auto()  # as TRIAL, for a lane in place of a lost one
    CLOSED = auto()


class PreconEvent(Row):
    """An event on a precon. The side that sends a frame and the side that receives it record the
    same event."""

    HELLO = auto()
    PROOF = auto()
    INTRO = auto()
    WELCOME = auto()
    CROSSED = auto()
    RENEWED = auto()  # as WELCOME, for the guard of a connection that is up
    PROPOSAL = auto()
    ANSWER = auto()
    NO_ANSWER = auto()  # no candidate is left
    REPORT = auto()
    TRIAL_FAILED = auto()  # the candidate failed on both sides; the next candidate follows
    ESTABLISHED = auto()
    CLOSING = auto()


LINK: Mapping[PreconState, Mapping[PreconEvent, PreconState]] = {
    PreconState.HELLO: {PreconEvent.HELLO: PreconState.PROOF},
    PreconState.PROOF: {PreconEvent.PROOF: PreconState.INTRO},
    PreconState.INTRO: {PreconEvent.INTRO: PreconState.WELCOME},
    PreconState.WELCOME: {
        PreconEvent.WELCOME: PreconState.PROPOSAL,
        PreconEvent.CROSSED: PreconState.PARKED,
        PreconEvent.RENEWED: PreconState.GUARD,
    },
    PreconState.PARKED: {PreconEvent.PROPOSAL: PreconState.ANSWER},
    PreconState.PROPOSAL: {PreconEvent.PROPOSAL: PreconState.ANSWER},
    PreconState.ANSWER: {
        PreconEvent.ANSWER: PreconState.TRIAL,
        PreconEvent.NO_ANSWER: PreconState.CLOSED,
    },
    PreconState.TRIAL: {
        PreconEvent.REPORT: PreconState.TRIAL,
        PreconEvent.TRIAL_FAILED: PreconState.ANSWER,
        PreconEvent.ESTABLISHED: PreconState.GUARD,
    },
    PreconState.GUARD: {
        PreconEvent.CLOSING: PreconState.GUARD,
        PreconEvent.PROPOSAL: PreconState.ANSWER_AGAIN,
    },
    PreconState.ANSWER_AGAIN: {
        PreconEvent.CLOSING: PreconState.ANSWER_AGAIN,
        PreconEvent.ANSWER: PreconState.TRIAL_AGAIN,
        PreconEvent.NO_ANSWER: PreconState.GUARD,
    },
    PreconState.TRIAL_AGAIN: {
        PreconEvent.CLOSING: PreconState.TRIAL_AGAIN,
        PreconEvent.REPORT: PreconState.TRIAL_AGAIN,
        PreconEvent.TRIAL_FAILED: PreconState.GUARD,
        PreconEvent.ESTABLISHED: PreconState.GUARD,
    },
    PreconState.CLOSED: {},
}


class Report(Row):
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
