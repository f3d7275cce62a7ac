"""What a `Handshake` tells its owner: each event is something that the peer did."""

from __future__ import annotations

from pscompy.config.values import Value
from pscompy.control.handshake import frames
from pscompy.control.handshake.frames import Identity, Kind, RefuseCode
from pscompy.control.handshake.states import LinkState


class Introduced(Value):
    """To the listener: call `welcome`, `cross` or `refuse`."""

    kind: Kind
    identity: Identity


class Welcomed(Value):
    """To the dialer. Unless crossed, the connector calls `offer` now."""

    identity: Identity
    crossed: bool


class Offered(Value):
    """To the acceptor: call `answer`."""

    offer: frames.Offer


class Answered(Value):
    """To the connector. With lanes: connect them, then `lane_up` or `lane_failed`."""

    answer: frames.Answer


class TrialFailed(Value):
    """To both: undo the lanes of this attempt; the acceptor answers anew."""

    attempt: int
    reason: str
    here: bool  # whose lane failed first, as far as this side knows


class Established(Value):
    """To both: the lanes of this attempt carry messages from now on."""

    attempt: int


class PeerClosing(Value):
    """The in-band close of the peer is on its way."""


class Refused(Value):
    """The peer ended the link and says why."""

    code: RefuseCode
    reason: str


class Ended(Value):
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
