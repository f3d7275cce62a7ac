"""The phases of a connection's record, and how a peer's link is treated in each phase."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from pscompy.control.handshake.tables import Row


class Phase(Row):
    """The phase of a connection's record, from lazy to closed."""

    LAZY = auto()  # not used yet
    DIALING = auto()  # this side makes a link, and is the connector
    CALLING = auto()  # this side makes a link, and asks the peer to be the connector
    NEGOTIATING = auto()  # one link is in use, lanes are coming up
    UP = auto()
    CLOSED = auto()


class PhaseEvent(Row):
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
        PhaseEvent.GAVE_UP: Phase.LAZY,  # no link can be made
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
    """The decision about a link on which a peer was introduced."""

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
