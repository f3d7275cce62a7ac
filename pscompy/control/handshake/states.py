"""The transition tables of a precon link and of the reports on its lanes.

These tables alone decide which transitions are legal; they do not depend on the side of a link, do
no I/O, and hold no lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import auto

from pscompy.control.handshake.tables import Row


class LinkState(Row):
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


class LinkEvent(Row):
    """An event on a link. The side that sends a frame and the side that receives it record the same
    event."""

    HELLO = auto()
    PROOF = auto()
    INTRO = auto()
    WELCOME = auto()
    CROSSED = auto()
    RENEWED = auto()  # as WELCOME, for the guard of a connection that is up
    OFFER = auto()
    ANSWER = auto()
    NO_ANSWER = auto()  # no candidate is left
    REPORT = auto()
    TRIAL_FAILED = auto()  # the candidate failed on both sides; the next candidate follows
    ESTABLISHED = auto()
    CLOSING = auto()


LINK: Mapping[LinkState, Mapping[LinkEvent, LinkState]] = {
    LinkState.HELLO: {LinkEvent.HELLO: LinkState.PROOF},
    LinkState.PROOF: {LinkEvent.PROOF: LinkState.INTRO},
    LinkState.INTRO: {LinkEvent.INTRO: LinkState.WELCOME},
    LinkState.WELCOME: {
        LinkEvent.WELCOME: LinkState.OFFER,
        LinkEvent.CROSSED: LinkState.PARKED,
        LinkEvent.RENEWED: LinkState.GUARD,
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
