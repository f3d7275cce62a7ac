"""The bytes of a precon after its greeting: a fixed-size proof, then bounded, sealed frames.

All numbers are little-endian. This module does no I/O, and checks the bounds of every field that
arrives before it is used: a frame that is too short, too long or malformed is a
`RemoteProtocolError`.

    proof     authentication code 32; all zero from a listener: the dialer's proof was wrong
    frame     length of the body 4, type 1, zero 3, body, authentication code 32
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, TypeVar

from pscompy.control.handshake.codec import Reader, Writer
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.limits import ADDRESS_MAX, LANES_MAX, MAC_SIZE, TOKEN_SIZE
from pscompy.control.handshake.tables import RemoteProtocolError

Code = TypeVar("Code", bound=IntEnum)
E = TypeVar("E", bound="_Empty")


BODY_MAX = 64 * 1024
CANDIDATES_MAX = 32
REASONS_MAX = 64
TRANSPORT_NAME_MAX = 15
REASON_MAX = 512
_REPEATED = 32  # frames in each cache, because many precons have equal introductions and reports

_HEADER = struct.Struct("<IB3s")
_NUMBERS = struct.Struct("<HHI")  # numbers of a candidate: group, lane, priority
HEADER_SIZE = _HEADER.size

WRONG_PROOF = bytes(MAC_SIZE)


class FrameType(IntEnum):
    INTRO = 1
    WELCOME = 2
    PROPOSAL = 3
    ANSWER = 4
    REPORT = 5
    CLOSING = 6
    BYE = 7
    REFUSE = 8


class Kind(IntEnum):
    """The purpose for which a precon was dialed."""

    PLAIN = 1  # a new connection to a listening socket
    PEER = 2  # a connection of a World; the dialer has the lower name, and is the connector
    ASK = 3  # a connection of a World; the dialer asks the listener to be the connector
    GUARD = 4  # the guard of a connection that is up, in place of a precon that has ended


class RefuseCode(IntEnum):
    """The reason for which one side ends a precon."""

    NAME_IN_USE = 1
    NOT_HERE = 2  # no such peer or socket here
    CLOSED = 3
    LATER = 4  # an older precon of the same peer has not ended yet
    FULL = 6  # no descriptor is left for one more connection; the code 5 is not in use


def _pack_reasons(to: Writer, reasons: tuple[tuple[str, str], ...]) -> None:
    to.count(len(reasons), REASONS_MAX)
    for transport, reason in reasons:
        to.text(transport, TRANSPORT_NAME_MAX)
        to.text(reason, REASON_MAX)


def _unpack_reason(source: Reader) -> tuple[str, str]:
    return source.text(TRANSPORT_NAME_MAX), source.text(REASON_MAX)


class Intro(NamedTuple):
    kind: Kind
    identity: Identity
    token: bytes = b""  # Kind.GUARD: names the connection; see Handshake.guard_token

    def pack(self, to: Writer) -> None:
        to.number(self.kind, 1)
        self.identity.pack(to)
        to.data(self.token, TOKEN_SIZE)

    @classmethod
    def unpack(cls, source: Reader) -> Intro:
        kind = _enum(Kind, source.number(1))
        return cls(kind, Identity.unpack(source), source.data(TOKEN_SIZE))


class Welcome(NamedTuple):
    identity: Identity
    crossed: bool = False

    def pack(self, to: Writer) -> None:
        to.number(self.crossed, 1)
        self.identity.pack(to)

    @classmethod
    def unpack(cls, source: Reader) -> Welcome:
        crossed = bool(source.number(1))
        return cls(Identity.unpack(source), crossed)


class Candidate(NamedTuple):
    """A transport that the connector can use, with the address of a new lane. Several candidates
    may become lanes of one connection if they have the same group; in group 0 they must also be
    rails of the same transport, in other groups (PSP_RAILS) they may be of different transports."""

    transport: str
    priority: int  # the user's priority: PSP_<TRANSPORT>
    address: bytes
    group: int = 0
    lane: int = 0  # number of the transport's rail

    @property
    def rail_set(self) -> tuple[int, str]:
        """Equal for candidates that may become lanes of one connection."""
        return self.group, "" if self.group else self.transport

    def pack(self, to: Writer) -> None:
        to.text(self.transport, TRANSPORT_NAME_MAX)
        to.raw(_NUMBERS.pack(self.group, self.lane, self.priority))
        to.data(self.address, ADDRESS_MAX)

    @classmethod
    def unpack(cls, source: Reader) -> Candidate:
        transport = source.text(TRANSPORT_NAME_MAX)
        group, lane, priority = source.numbers(_NUMBERS)
        return cls(transport, priority, source.data(ADDRESS_MAX), group, lane)


class Proposal(NamedTuple):
    """The connector's candidates in the order of its preference, and the reasons why it lacks other
    transports."""

    candidates: tuple[Candidate, ...]
    absent: tuple[tuple[str, str], ...] = ()

    def pack(self, to: Writer) -> None:
        to.count(len(self.candidates), CANDIDATES_MAX)
        for candidate in self.candidates:
            candidate.pack(to)
        _pack_reasons(to, self.absent)

    @classmethod
    def unpack(cls, source: Reader) -> Proposal:
        candidates = source.list(CANDIDATES_MAX, Candidate.unpack)
        return cls(candidates, source.list(REASONS_MAX, _unpack_reason))


class Choice(NamedTuple):
    """One lane of the answer: the index of a candidate, and the address of the acceptor's lane."""

    candidate: int
    address: bytes

    def pack(self, to: Writer) -> None:
        to.number(self.candidate, 2)
        to.data(self.address, ADDRESS_MAX)

    @classmethod
    def unpack(cls, source: Reader) -> Choice:
        return cls(source.number(2), source.data(ADDRESS_MAX))


class Answer(NamedTuple):
    """The acceptor's choice; if it has no lanes, no candidate is left. `rejected` has the reasons
    for candidates that were rejected since the last answer."""

    attempt: int
    lanes: tuple[Choice, ...]
    rejected: tuple[tuple[str, str], ...] = ()

    def pack(self, to: Writer) -> None:
        to.number(self.attempt, 4)
        to.count(len(self.lanes), LANES_MAX)
        for lane in self.lanes:
            lane.pack(to)
        _pack_reasons(to, self.rejected)

    @classmethod
    def unpack(cls, source: Reader) -> Answer:
        attempt = source.number(4)
        lanes = source.list(LANES_MAX, Choice.unpack)
        return cls(attempt, lanes, source.list(REASONS_MAX, _unpack_reason))


class Said(IntEnum):
    """The state of a side's lanes, as a LaneReport gives it; see `states.Report`."""

    UP = 1
    GO = 2
    FAILED = 3
    LATE = 4  # the candidate's time has passed on this side


class LaneReport(NamedTuple):
    attempt: int
    said: Said
    reason: str = ""

    def pack(self, to: Writer) -> None:
        to.number(self.attempt, 4)
        to.number(self.said, 1)
        to.text(self.reason, REASON_MAX)

    @classmethod
    def unpack(cls, source: Reader) -> LaneReport:
        attempt = source.number(4)
        said = _enum(Said, source.number(1))
        return cls(attempt, said, source.text(REASON_MAX))


class _Empty:
    """A frame without a body."""

    def pack(self, to: Writer) -> None:
        pass

    @classmethod
    def unpack(cls: type[E], source: Reader) -> E:
        return cls()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = object.__hash__


class Closing(_Empty):
    """The sender's last message is in flight on the lanes: the peer drives progress until
    that message arrives."""


class Bye(_Empty):
    """The precon is ended on purpose."""


class Refuse(NamedTuple):
    code: RefuseCode
    reason: str

    def pack(self, to: Writer) -> None:
        to.number(self.code, 1)
        to.text(self.reason, REASON_MAX)

    @classmethod
    def unpack(cls, source: Reader) -> Refuse:
        return cls(_enum(RefuseCode, source.number(1)), source.text(REASON_MAX))


Frame = Intro | Welcome | Proposal | Answer | LaneReport | Closing | Bye | Refuse

_FRAMES: dict[int, type[Frame]] = {
    FrameType.INTRO: Intro,
    FrameType.WELCOME: Welcome,
    FrameType.PROPOSAL: Proposal,
    FrameType.ANSWER: Answer,
    FrameType.REPORT: LaneReport,
    FrameType.CLOSING: Closing,
    FrameType.BYE: Bye,
    FrameType.REFUSE: Refuse,
}
TYPES = {frame: number for number, frame in _FRAMES.items()}


def _enum(kind: type[Code], value: int) -> Code:
    try:
        return kind(value)
    except ValueError:
        raise RemoteProtocolError(f"{value} is no {kind.__name__}") from None


@lru_cache(_REPEATED, typed=True)
def encode(frame: Frame) -> bytes:
    """Return header and body, which are sealed together."""
    writer = Writer()
    frame.pack(writer)
    body = writer.bytes()
    if len(body) > BODY_MAX:
        raise ValueError(f"frame of {len(body)} bytes, at most {BODY_MAX} are allowed")
    return _HEADER.pack(len(body), TYPES[type(frame)], b"\0\0\0") + body


def body_size(header: bytes | bytearray) -> int:
    """Return the length of the body that follows this header, whose bounds are checked."""
    size, _type, zero = _HEADER.unpack(header)
    if size > BODY_MAX or zero != b"\0\0\0":
        raise RemoteProtocolError(f"malformed frame header (body of {size} bytes)")
    return int(size)


@lru_cache(_REPEATED)
def decode(data: bytes) -> Frame:
    """Return the frame of this header and body, whose seal was checked."""
    _size, kind, _zero = _HEADER.unpack(data[:HEADER_SIZE])
    if kind not in _FRAMES:
        raise RemoteProtocolError(f"unknown frame type {kind}")
    reader = Reader(data[HEADER_SIZE:])
    frame = _FRAMES[kind].unpack(reader)
    reader.end()
    return frame
