"""The phases of a connection's record, and how a peer's precon is treated in each phase."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from pscompy.control.handshake.tables import Row


class Phase(Row):
    """The phase of a connection's record, from lazy to closed."""

    LAZY = auto()  # not used yet
    DIALING = auto()  # this side makes a precon, and is the connector
    ASKING = auto()  # this side makes a precon, and asks the peer to be the connector
    NEGOTIATING = auto()  # one precon is in use, lanes are coming up
    UP = auto()
    CLOSED = auto()


class PhaseEvent(Row):
    DIAL = auto()
    ASK = auto()
    TAKE = auto()  # a precon was made by either side, and the connection is negotiated on it
    ESTABLISHED = auto()
    GAVE_UP = auto()  # connecting failed; the next use tries again
    ENDED = auto()  # closed, or the peer was lost


PHASE: Mapping[Phase, Mapping[PhaseEvent, Phase]] = {
    Phase.LAZY: {
        PhaseEvent.DIAL: Phase.DIALING,
        PhaseEvent.ASK: Phase.ASKING,
        PhaseEvent.TAKE: Phase.NEGOTIATING,
        PhaseEvent.GAVE_UP: Phase.LAZY,  # no precon can be made
        PhaseEvent.ENDED: Phase.CLOSED,
    },
    Phase.DIALING: {
        PhaseEvent.TAKE: Phase.NEGOTIATING,
        PhaseEvent.GAVE_UP: Phase.LAZY,
        PhaseEvent.ENDED: Phase.CLOSED,
    },
    Phase.ASKING: {
        PhaseEvent.TAKE: Phase.NEGOTIATING,
        PhaseEvent.GAVE_UP: Phase.LAZY,
        PhaseEvent.ENDED: Phase.CLOSED,
    },
    Phase.NEGOTIATING: {
        PhaseEvent.ESTABLISHED: Phase.UP,
        PhaseEvent.DIAL: Phase.DIALING,  # the precon broke: try again
        PhaseEvent.ASK: Phase.ASKING,
        PhaseEvent.TAKE: Phase.NEGOTIATING,  # the precon broke, and a parked precon is used
        PhaseEvent.GAVE_UP: Phase.LAZY,
        PhaseEvent.ENDED: Phase.CLOSED,
    },
    Phase.UP: {PhaseEvent.ENDED: Phase.CLOSED},
    Phase.CLOSED: {},
}


class Verdict(Enum):
    """The decision about a precon on which a peer was introduced."""

    TAKE = auto()  # negotiate on this precon
    CROSS = auto()  # this side is connecting already: park the peer's precon
    LATER = auto()  # an older precon of that peer has not ended yet: the peer tries again
    GONE = auto()  # this connection was closed here


# Verdict on an ASK, by phase: the peer asks this side, of the lower name, to be the connector.
ON_ASK: Mapping[Phase, Verdict] = {
    Phase.LAZY: Verdict.TAKE,
    Phase.DIALING: Verdict.CROSS,
    Phase.ASKING: Verdict.LATER,  # impossible: the side with the lower name never asks
    Phase.NEGOTIATING: Verdict.CROSS,
    Phase.UP: Verdict.LATER,
    Phase.CLOSED: Verdict.GONE,
}

# Verdict on a precon of the side with the lower name, the connector, by phase.
ON_CONNECT: Mapping[Phase, Verdict] = {
    Phase.LAZY: Verdict.TAKE,
    Phase.DIALING: Verdict.LATER,  # impossible: the side with the higher name only asks
    Phase.ASKING: Verdict.TAKE,  # the peer will park this side's own precon
    Phase.NEGOTIATING: Verdict.LATER,
    Phase.UP: Verdict.LATER,
    Phase.CLOSED: Verdict.GONE,
}
