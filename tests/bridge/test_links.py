"""Frames in streams, and the proof that both ends of a link hold its token. No I/O."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pscompy.transport.python.bridged_link import BridgedLink
from pscompy.transport.python.proof import Accepting, Connecting, Refused, read_hello

TOKEN, OTHER = b"t" * 32, b"o" * 32
frames = st.lists(st.binary(min_size=1, max_size=300), max_size=8)


class Sink:
    """Takes a random number of bytes per call; 0 means that it takes none now."""

    def __init__(self, dice: st.DataObject) -> None:
        self.data = b""
        self._dice = dice

    def send(self, link: object, data: memoryview) -> int:
        taken = self._dice.draw(st.integers(0, len(data)))
        self.data += bytes(data[:taken])
        return taken


@given(frames, st.data())
def test_a_stream_keeps_frames_whatever_the_pieces(sent: list[bytes], dice: st.DataObject) -> None:
    out, back = BridgedLink(True, 300), BridgedLink(True, 300)
    sink = Sink(dice)
    for frame in sent:
        out.push(frame, counted=True)
    done = 0
    while out.blocked:
        done += out.flush(sink.send)
    came, data = [], sink.data
    while data:
        cut = dice.draw(st.integers(1, len(data)))
        came += back.cut(data[:cut])
        data = data[cut:]
    assert (came, done) == (sent, len(sent))


@given(frames)
def test_messages_are_frames(sent: list[bytes]) -> None:
    out, back = BridgedLink(False, 300), BridgedLink(False, 300)
    came: list[bytes] = []
    for frame in sent:
        out.push(frame, counted=True)

    def send(link: object, data: memoryview) -> int:
        came.extend(back.cut(bytes(data)))
        return len(data)

    assert out.flush(send) == len(sent)
    assert came == sent


@given(st.binary(min_size=1, max_size=2000))
def test_absurd_streams_are_refused_or_wait(data: bytes) -> None:
    bridged = BridgedLink(True, 300)
    try:
        came = list(bridged.cut(data))
    except ConnectionError:
        return
    assert all(0 <= len(frame) <= 300 for frame in came)


def test_a_frame_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConnectionError, match="301 bytes"):
        list(BridgedLink(False, 300).cut(bytes(301)))
    with pytest.raises(ConnectionError, match="301 bytes"):
        list(BridgedLink(True, 300).cut((301).to_bytes(4, "little")))


@pytest.mark.parametrize("taken", [-1, 5, 11])
def test_a_transport_that_takes_a_part_of_a_message_is_told(taken: int) -> None:
    bridged = BridgedLink(False, 300)
    bridged.push(bytes(10), counted=True)
    with pytest.raises(ValueError, match=rf"send\(\) took {taken} "):
        bridged.flush(lambda link, data: taken)


def test_both_prove_the_token() -> None:
    connecting = Connecting(TOKEN, 5, 77)
    number, nonce = read_hello(connecting.first)
    assert number == 77
    accepting = Accepting(TOKEN, number, 5, nonce)
    accepting.receive(connecting.receive(accepting.first))


def test_a_wrong_token_is_refused_on_both_sides() -> None:
    connecting = Connecting(TOKEN, 5, 77)
    number, nonce = read_hello(connecting.first)
    with pytest.raises(Refused, match="acceptor does not hold the lane's token"):
        connecting.receive(Accepting(OTHER, number, 5, nonce).first)
    impostor = Connecting(OTHER, 5, 77)
    _, nonce = read_hello(impostor.first)
    answer = impostor.receive(Accepting(OTHER, 77, 5, nonce).first)
    with pytest.raises(Refused, match="connector does not hold the lane's token"):
        Accepting(TOKEN, 77, 5, nonce).receive(answer)


@pytest.mark.parametrize(
    "wrong",
    [lambda right, back: back[16:], lambda right, back: right[:-1], lambda right, back: b""],
)
def test_answers_cannot_be_sent_back(wrong: Callable[[bytes, bytes], bytes]) -> None:
    connecting = Connecting(TOKEN, 5, 77)
    accepting = Accepting(TOKEN, 77, 5, read_hello(connecting.first)[1])
    answer = connecting.receive(accepting.first)
    with pytest.raises(Refused):
        accepting.receive(wrong(answer, accepting.first))
    with pytest.raises(Refused, match="out of turn"):
        accepting.receive(answer)  # one attempt, also after a wrong one


def test_answers_cannot_be_used_again() -> None:
    connecting = Connecting(TOKEN, 5, 77)
    _, nonce = read_hello(connecting.first)
    accepting, later = Accepting(TOKEN, 77, 5, nonce), Accepting(TOKEN, 77, 5, nonce)
    answer = connecting.receive(accepting.first)
    with pytest.raises(Refused):
        later.receive(answer)


@given(st.binary(max_size=100))
def test_strangers_are_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        read_hello(data)
    with pytest.raises(Refused):
        Connecting(TOKEN, 5, 1).receive(data)
    with pytest.raises(Refused):
        Accepting(TOKEN, 1, 5, bytes(16)).receive(data)
