"""Events of a `Handshake` for its owner: each is something that the peer did."""

from __future__ import annotations

from dataclasses import dataclass

from pscompy.control.handshake import frames
from pscompy.control.handshake.frames import Identity, Kind, RefuseCode
from pscompy.control.handshake.states import LinkState


@dataclass(frozen=True, slots=True)
class Introduced:
    """A dialer has proved the key. The listener calls `welcome`, `cross` or `refuse`."""

    kind: Kind
    identity: Identity


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The listener agrees. Unless crossed, the connector calls `offer` now."""

    identity: Identity
    crossed: bool


@dataclass(frozen=True, slots=True)
class Offered:
    """The connector has offered. The acceptor calls `answer`."""

    offer: frames.Offer


@dataclass(frozen=True, slots=True)
class Answered:
    """The acceptor has answered. The connector connects the lanes, if there are any, and calls
    `lane_up` or `lane_failed`."""

    answer: frames.Answer


@dataclass(frozen=True, slots=True)
class TrialFailed:
    """The attempt failed on both sides: both destroy its lanes, and the acceptor answers again."""

    attempt: int
    reason: str
    here: bool  # whether a lane of this side failed first, as far as this side knows


@dataclass(frozen=True, slots=True)
class Established:
    """The lanes of this attempt carry messages from now on, on both sides."""

    attempt: int


@dataclass(frozen=True, slots=True)
class PeerClosing:
    """The peer's last message is in flight on the lanes."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The peer ended the link and sent a reason."""

    code: RefuseCode
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The link has ended: with a `bye`, or because the peer or the network to it failed."""

    bye: bool
    state: LinkState  # in which the link ended


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
