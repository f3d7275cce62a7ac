"""The handshake refuses what breaks its rules, and garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from precon_pairs import KEY, Pair, identity

from pscompy.control.handshake.events import (
    Proposed,
)
from pscompy.control.handshake.frames import Choice, Kind, Proposal
from pscompy.control.handshake.handshake import Handshake, Side, frames
from pscompy.control.handshake.states import PreconState
from pscompy.control.handshake.tables import RemoteProtocolError
from pscompy.errors import PscomError


def test_an_answer_must_choose_what_was_proposed() -> None:
    pair = Pair()
    pair.introduce()
    pair.propose("shm")
    pair.acceptor.answer((Choice(1, b"x"),))
    with pytest.raises(RemoteProtocolError, match="not proposed"):
        pair.run()


@pytest.mark.parametrize("second", [(0,), (1, 1)])
def test_an_answer_must_choose_what_is_left(second: tuple[int, ...]) -> None:
    pair = Pair()
    pair.introduce()
    pair.propose("shm", "tcp")
    pair.answer(0)
    pair.acceptor.lane_failed("a cause")
    pair.run()
    pair.acceptor.answer(tuple(Choice(candidate, b"x") for candidate in second))
    with pytest.raises(RemoteProtocolError, match="chosen before"):
        pair.run()


@pytest.mark.parametrize(
    ("indices", "together"), [((0, 1), False), ((1, 2), False), ((2, 3), True)]
)
def test_an_answer_must_choose_what_goes_together(indices: tuple[int, ...], together: bool) -> None:
    """Candidates of one transport, or of one group."""
    pair = Pair()
    pair.introduce()
    places = [("shm", 0), ("tcp", 0), ("tcp", 1), ("gm", 1)]
    made = (frames.Candidate(name, 1, b"x", group) for name, group in places)
    pair.connector.propose(Proposal(tuple(made)))
    pair.run()
    pair.acceptor.answer(tuple(Choice(index, b"x") for index in indices))
    if together:
        pair.run()
        return
    with pytest.raises(RemoteProtocolError, match="do not go together"):
        pair.run()


def test_a_proposal_from_the_acceptor_is_refused() -> None:
    pair = Pair()
    pair.introduce()
    pair.listener.kind = Kind.ASK  # the listener now takes itself for the connector
    pair.listener.propose(Proposal(()))
    with pytest.raises(RemoteProtocolError, match="proposal from the acceptor"):
        pair.run()


def test_a_second_introduction_is_refused() -> None:
    pair = Pair()
    pair.introduce()
    pair.dialer._introduce()
    with pytest.raises(RemoteProtocolError, match="INTRO"):
        pair.run()


@given(st.data())
def test_flipped_bits_never_go_unnoticed(data: st.DataObject) -> None:
    """One flipped bit anywhere in the dialer's bytes gives a typed error, or leaves the listener
    waiting for more bytes."""
    pair = Pair()
    pair.listener.receive(pair.dialer.output())
    pair.dialer.receive(pair.listener.output())
    stream = bytearray(pair.dialer.output())
    at = data.draw(st.integers(0, len(stream) * 8 - 1))
    stream[at // 8] ^= 1 << at % 8
    try:
        events = pair.listener.receive(bytes(stream))
    except PscomError:
        assert pair.listener.state is PreconState.CLOSED
    else:
        assert events == []


@given(st.lists(st.binary(max_size=200), max_size=8), st.sampled_from(Side))
def test_garbage_never_crashes(pieces: list[bytes], side: Side) -> None:
    machine = Handshake(side, KEY, identity("a"), Kind.PLAIN if side is Side.DIALER else None)
    for piece in pieces:
        try:
            machine.receive(piece)
        except PscomError:
            assert machine.state is PreconState.CLOSED
    assert not machine.authenticated or machine.state is PreconState.CLOSED


@given(
    st.binary(max_size=400), st.integers(0, 255), st.sampled_from(["intro", "proposal", "trial"])
)
def test_garbage_of_one_who_holds_the_key_never_crashes(body: bytes, kind: int, stage: str) -> None:
    pair = Pair()
    if stage == "intro":
        pair.dialer.__dict__["_introduce"] = lambda: None
        pair.run()
        assert pair.listener.state is PreconState.INTRO
    elif stage == "proposal":
        pair.introduce()
    else:
        pair.to_trial()
    content = len(body).to_bytes(4, "little") + bytes([kind, 0, 0, 0]) + body
    pair.dialer._stream.send_content(content)
    try:
        pair.listener.receive(pair.dialer.output())
    except PscomError:
        assert pair.listener.state is PreconState.CLOSED


def test_offers_are_delivered_as_they_were_sealed() -> None:
    pair = Pair()
    pair.introduce()
    proposal = Proposal((frames.Candidate("tcp", 3, b"\x00\xff", 1, 2),), (("shm", "off"),))
    pair.connector.propose(proposal)
    pair.run()
    assert pair.take(pair.acceptor) == [Proposed(proposal)]
