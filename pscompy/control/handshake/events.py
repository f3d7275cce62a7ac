"""Events of a `Handshake` for its owner: each is something that the peer did."""

from __future__ import annotations

from typing import NamedTuple

from pscompy.control.handshake import frames
from pscompy.control.handshake.frames import Kind, RefuseCode
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.states import PreconState


class Introduced(NamedTuple):
    """A dialer has authenticated. The listener calls `welcome`, `cross` or `refuse`."""

    kind: Kind
    identity: Identity
    token: bytes  # Kind.GUARD: the `guard_token` of the connection's first precon


class Welcomed(NamedTuple):
    """The listener accepts the dialer's precon. If `crossed`, the precon is parked, because the
    listener is already connecting to the dialer by another one; otherwise the connector calls
    `propose` now, unless the precon is the guard of a connection that is up."""

    identity: Identity
    crossed: bool


class Proposed(NamedTuple):
    """The connector has proposed candidates. The acceptor calls `answer`."""

    proposal: frames.Proposal


class Answered(NamedTuple):
    """The acceptor has answered. The connector connects the lanes, if there are any, and calls
    `lane_up` or `lane_failed`."""

    answer: frames.Answer


class TrialFailed(NamedTuple):
    """The attempt failed on both sides: both destroy its lanes, and the acceptor answers again."""

    attempt: int
    reason: str
    here: bool  # whether a lane of this side failed first, as far as this side knows


class Established(NamedTuple):
    """The lanes of this attempt carry messages from now on, on both sides."""

    attempt: int


class PeerClosing:
    """The peer's last message is in flight on the lanes."""


class Refused(NamedTuple):
    """The peer ended the precon and sent a reason."""

    code: RefuseCode
    reason: str


class Ended(NamedTuple):
    """The precon has ended: with a `bye`, or because the peer or the network to it failed."""

    bye: bool
    state: PreconState  # state in which the precon ended


HandshakeEvent = (
    Introduced
    | Welcomed
    | Proposed
    | Answered
    | TrialFailed
    | Established
    | PeerClosing
    | Refused
    | Ended
)
