"""What a `Handshake` tells its owner: each event is something that the peer did."""

from __future__ import annotations

from dataclasses import dataclass

from pscompy.control.handshake import frames
from pscompy.control.handshake.frames import Identity, Kind, RefuseCode
from pscompy.control.handshake.states import LinkState


@dataclass(frozen=True, slots=True)
class Introduced:
    """To the listener: call `welcome`, `cross` or `refuse`."""

    kind: Kind
    identity: Identity


@dataclass(frozen=True, slots=True)
class Welcomed:
    """To the dialer. Unless crossed, the connector calls `offer` now."""

    identity: Identity
    crossed: bool


@dataclass(frozen=True, slots=True)
class Offered:
    """To the acceptor: call `answer`."""

    offer: frames.Offer


@dataclass(frozen=True, slots=True)
class Answered:
    """To the connector. With lanes: connect them, then `lane_up` or `lane_failed`."""

    answer: frames.Answer


@dataclass(frozen=True, slots=True)
class TrialFailed:
    """To both: undo the lanes of this attempt; the acceptor answers anew."""

    attempt: int
    reason: str
    here: bool  # whose lane failed first, as far as this side knows


@dataclass(frozen=True, slots=True)
class Established:
    """To both: the lanes of this attempt carry messages from now on."""

    attempt: int


@dataclass(frozen=True, slots=True)
class PeerClosing:
    """The in-band close of the peer is on its way."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The peer ended the link and says why."""

    code: RefuseCode
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The link is over: in order (`bye`), or the peer or the way to it broke down."""

    bye: bool
    state: LinkState  # what was waited for


HandshakeEvent = (
    Introduced
    | Welcomed
    | Offered
    | Answered
    | TrialFailed
    | Established
    | PeerClosing
    | Refused
    | Ended
)
