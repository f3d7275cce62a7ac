"""Frames: packed frames are unpacked unchanged; malformed frames raise a typed error, never
crash.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pscompy.control.handshake import frames, greeting, limits
from pscompy.control.handshake.frames import (
    Answer,
    Bye,
    Candidate,
    Choice,
    Closing,
    Frame,
    Intro,
    Kind,
    LaneReport,
    Proposal,
    Refuse,
    RefuseCode,
    Said,
    Welcome,
)
from pscompy.control.handshake.greeting import Hello
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.tables import RemoteProtocolError

names = st.text(max_size=60)
short = st.text(alphabet="abcdefghij", min_size=1, max_size=frames.TRANSPORT_NAME_MAX)
reasons = st.lists(st.tuples(short, names), max_size=4).map(tuple)
addresses = st.binary(max_size=limits.ADDRESS_MAX)
u16, u32 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
identities = st.builds(
    Identity,
    uid=st.binary(min_size=16, max_size=16),
    name=names,
    host=names,
    hostname=names,
    user=u32,
    pid=u32,
    module=names,
    rank=st.integers(-1, 2**31 - 1),
    job=names,
)
candidates = st.builds(
    Candidate, transport=short, priority=u32, address=addresses, group=u16, lane=u16
)
choices = st.builds(Choice, candidate=u16, address=addresses)
all_frames = st.one_of(
    st.builds(Intro, kind=st.sampled_from(Kind), identity=identities, token=st.binary(max_size=32)),
    st.builds(Welcome, identity=identities, crossed=st.booleans()),
    st.builds(Proposal, candidates=st.lists(candidates, max_size=4).map(tuple), absent=reasons),
    st.builds(
        Answer, attempt=u32, lanes=st.lists(choices, max_size=4).map(tuple), rejected=reasons
    ),
    st.builds(LaneReport, attempt=u32, said=st.sampled_from(Said), reason=names),
    st.builds(Closing),
    st.builds(Bye),
    st.builds(Refuse, code=st.sampled_from(RefuseCode), reason=names),
)


@given(all_frames)
def test_a_frame_comes_back(frame: Frame) -> None:
    data = frames.encode(frame)
    assert frames.body_size(data[: frames.HEADER_SIZE]) == len(data) - frames.HEADER_SIZE
    assert frames.decode(data) == frame


@given(all_frames, st.data())
def test_a_truncated_frame_is_refused(frame: Frame, data: st.DataObject) -> None:
    whole = frames.encode(frame)
    if len(whole) == frames.HEADER_SIZE:
        return
    cut = data.draw(st.integers(frames.HEADER_SIZE, len(whole) - 1))
    with pytest.raises(RemoteProtocolError):
        frames.decode(whole[:cut])


@given(all_frames, st.binary(min_size=1, max_size=20))
def test_a_frame_with_more_than_it_says_is_refused(frame: Frame, more: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="too many"):
        frames.decode(frames.encode(frame) + more)


@given(st.integers(0, 255), st.binary(max_size=300))
def test_any_bytes_are_a_frame_or_a_typed_error(kind: int, body: bytes) -> None:
    header = len(body).to_bytes(4, "little") + bytes([kind, 0, 0, 0])
    try:
        frame = frames.decode(header + body)
    except RemoteProtocolError:
        return
    assert kind == frames.TYPES[type(frame)]


@pytest.mark.parametrize(
    "header", [b"\xff" * 8, b"\x01\x00\x01\x00\x01\0\0\0", b"\0\0\0\0\x01\1\0\0"]
)
def test_malformed_headers_are_refused_before_their_body_arrives(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="malformed"):
        frames.body_size(header)


def test_long_texts_are_cut_at_a_character() -> None:
    report = LaneReport(1, Said.FAILED, "ü" * frames.REASON_MAX)
    decoded = frames.decode(frames.encode(report))
    assert isinstance(decoded, LaneReport)
    assert decoded.reason == "ü" * (frames.REASON_MAX // 2)


def test_the_largest_proposal_fits() -> None:
    candidate = Candidate("x" * frames.TRANSPORT_NAME_MAX, 1, b"a" * limits.ADDRESS_MAX)
    reason = ("x" * frames.TRANSPORT_NAME_MAX, "r" * 300)
    proposal = Proposal((candidate,) * frames.CANDIDATES_MAX, (reason,) * frames.REASONS_MAX)
    assert frames.decode(frames.encode(proposal)) == proposal


def test_too_much_is_refused_where_it_is_made() -> None:
    candidate = Candidate("shm", 1, b"")
    with pytest.raises(ValueError, match="at most"):
        frames.encode(Proposal((candidate,) * (frames.CANDIDATES_MAX + 1)))
    with pytest.raises(ValueError, match="at most"):
        frames.encode(Proposal((Candidate("shm", 1, b"a" * (limits.ADDRESS_MAX + 1)),)))


@given(st.binary(min_size=32, max_size=32), u16, u16, st.integers(0, 2**32 - 1))
def test_a_greeting_comes_back(nonce: bytes, one: int, two: int, flags: int) -> None:
    hello = Hello(nonce, min(one, two), max(one, two), flags)
    assert len(hello.pack()) == greeting.HELLO_SIZE
    assert Hello.unpack(hello.pack()) == hello


def test_an_empty_version_range_is_malformed() -> None:
    with pytest.raises(RemoteProtocolError, match="malformed"):
        Hello.unpack(Hello(b"n" * 32, 3, 2).pack())


@pytest.mark.parametrize("stranger", [b"G", b"GET / HTTP/1.1", b"\x93pscompX", b"SSH-2.0"])
def test_a_stranger_is_known_by_its_first_bytes(stranger: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="does not speak"):
        greeting.check_magic(stranger)
