"""The handshake between two real state machines over bytes in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from precon_pairs import KEY, Pair, identity

from pscompy.control.handshake.events import (
    Answered,
    Ended,
    Established,
    Introduced,
    PeerClosing,
    Refused,
    TrialFailed,
    Welcomed,
)
from pscompy.control.handshake.frames import Kind, Proposal, RefuseCode
from pscompy.control.handshake.handshake import Handshake, Side
from pscompy.control.handshake.states import PreconState
from pscompy.control.handshake.tables import LocalProtocolError, RemoteProtocolError

KINDS = [Kind.PLAIN, Kind.PEER, Kind.ASK]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_both_sides_come_up(kind: Kind, chunk: int) -> None:
    pair = Pair(kind)
    pair.run(chunk)
    (introduced,) = pair.take(pair.listener)
    assert isinstance(introduced, Introduced)
    assert (introduced.kind, introduced.identity.name) == (kind, "a")
    pair.listener.welcome()
    pair.run(chunk)
    (welcomed,) = pair.take(pair.dialer)
    assert isinstance(welcomed, Welcomed)
    assert (welcomed.identity.name, welcomed.crossed) == ("b", False)
    pair.propose("shm", "tcp")
    pair.answer(1)
    pair.report(pair.connector)
    pair.run(chunk)
    assert pair.take(pair.acceptor) == []
    pair.report(pair.acceptor)
    pair.run(chunk)
    for side in (pair.connector, pair.acceptor):
        assert pair.take(side) == [Established(1)]
        assert side.state is PreconState.GUARD


def test_a_caller_is_the_acceptor_of_its_own_precon() -> None:
    pair = Pair(Kind.ASK)
    pair.introduce()
    assert pair.connector is pair.listener
    with pytest.raises(LocalProtocolError):
        pair.dialer.propose(Proposal(()))


def test_both_sides_have_the_same_tokens_and_no_token_twice() -> None:
    tokens = set()
    for _ in range(2):
        pair = Pair()
        pair.to_trial()
        for lane in range(2):
            token = pair.dialer.lane_token(lane)
            assert len(token) == 32
            assert token == pair.listener.lane_token(lane)
            tokens.add(token)
    assert len(tokens) == 4


def test_a_precon_that_is_to_guard_is_the_guard_once_it_is_welcomed() -> None:
    first = Pair()
    first.to_trial()
    token = first.dialer.guard_token()
    assert token == first.listener.guard_token()
    pair = Pair(Kind.GUARD, token=token)
    pair.run()
    (introduced,) = pair.take(pair.listener)
    assert isinstance(introduced, Introduced)
    assert introduced.token == token
    pair.listener.welcome()
    pair.run()
    assert pair.dialer.state is pair.listener.state is PreconState.GUARD
    assert pair.connector is pair.dialer
    assert pair.dialer.guard_token() != token


# ---- attempts that fail --------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["connector", "acceptor", "both"])
def test_a_failed_attempt_is_undone_on_both_sides(who: str) -> None:
    pair = Pair()
    pair.to_trial()
    for side in ("connector", "acceptor"):
        if who in (side, "both"):
            pair.report(getattr(pair, side), "no memory")
    pair.run()
    here = {side: who in (name, "both") for name, side in _sides(pair).items()}
    for side, failed_here in here.items():
        assert pair.take(side) == [TrialFailed(1, "no memory", failed_here)]
        assert side.state is PreconState.ANSWER
    pair.answer(1)
    pair.report(pair.connector)
    pair.report(pair.acceptor)
    pair.run()
    assert pair.take(pair.connector) == pair.take(pair.acceptor) == [Established(2)]


def test_what_was_up_may_still_fail_before_both_are() -> None:
    pair = Pair()
    pair.to_trial()
    pair.report(pair.connector)
    pair.run()
    pair.report(pair.connector, "peer reset")
    pair.report(pair.acceptor)  # crosses the failure in flight: sends UP and GO
    pair.run()
    for side in _sides(pair).values():
        (failed,) = pair.take(side)
        assert isinstance(failed, TrialFailed)
        assert failed.reason == "peer reset"


def test_after_go_nothing_is_taken_back() -> None:
    pair = Pair()
    pair.to_trial()
    pair.report(pair.connector)
    pair.run()
    pair.report(pair.acceptor)  # the acceptor has sent GO now
    assert pair.acceptor.lane_failed("too late") == []
    pair.run()
    assert pair.take(pair.connector) == pair.take(pair.acceptor) == [Established(1)]


@pytest.mark.parametrize("up", ["connector", "acceptor", None])
def test_an_attempt_falls_when_both_sides_have_given_it_its_time(up: str | None) -> None:
    pair = Pair()
    pair.to_trial()
    if up is not None:
        pair.report(getattr(pair, up))
    assert pair.connector.lane_late("") == []
    pair.run()
    assert pair.take(pair.acceptor) == []
    pair.events[pair.acceptor] += pair.acceptor.lane_late("its send() blocks")
    pair.run()
    for side in _sides(pair).values():
        (failed,) = pair.take(side)
        assert isinstance(failed, TrialFailed)
        assert failed.here is (side is pair.acceptor)
        assert failed.reason.endswith("(PSP_CANDIDATE_TIMEOUT): its send() blocks")
        assert side.state is PreconState.ANSWER


def test_a_peer_that_is_busy_is_waited_for() -> None:
    pair = Pair()
    pair.to_trial()
    pair.report(pair.connector)
    pair.connector.lane_late("")
    assert pair.connector.lane_late("") == []
    pair.run()
    pair.report(pair.acceptor)  # the busy acceptor continues
    pair.run()
    assert pair.take(pair.connector) == pair.take(pair.acceptor) == [Established(1)]


@pytest.mark.parametrize("side", ["connector", "acceptor"])
def test_lanes_that_fail_unnoticed_before_both_know_that_they_are_up(side: str) -> None:
    """The fabric has failed the lanes, but the event is still unread when the peer's report
    arrives: GO is not sent."""
    pair = Pair()
    pair.to_trial()
    pair.report(pair.connector)
    pair.report(pair.acceptor)
    getattr(pair, side).check_lanes = lambda: "gone"
    pair.run()
    assert [type(event) for event in pair.take(pair.connector)] == [TrialFailed]
    (event,) = pair.take(pair.acceptor)
    assert (event.reason, event.here) == ("gone", side == "acceptor")
    assert pair.acceptor.state is PreconState.ANSWER


MOVES = ["up c", "up a", "fail c", "fail a", "late c", "late a", "c>a", "a>c"]


@given(st.lists(st.sampled_from(MOVES), max_size=16))
def test_both_sides_always_agree_on_an_attempt(moves: list[str]) -> None:
    """In any order of reports and deliveries both sides establish the attempt or both fail it."""
    pair = Pair()
    pair.to_trial()
    reported: set[tuple[str, str]] = set()
    for move in moves:
        _move(pair, move, reported)
    for side in _sides(pair).values():
        if side.state is PreconState.TRIAL and ("up", _name(pair, side)) not in reported:
            _move(pair, f"up {_name(pair, side)}", reported)
    pair.run()
    ends = [[type(event) for event in pair.take(side)] for side in _sides(pair).values()]
    assert ends[0] == ends[1]
    assert ends[0] in ([Established], [TrialFailed])


def _sides(pair: Pair) -> dict[str, Handshake]:
    return {"connector": pair.connector, "acceptor": pair.acceptor}


def _name(pair: Pair, side: Handshake) -> str:
    return "c" if side is pair.connector else "a"


def _move(pair: Pair, move: str, reported: set[tuple[str, str]]) -> None:
    sides = {"c": pair.connector, "a": pair.acceptor}
    if ">" in move:
        source, target = (sides[letter] for letter in move.split(">"))
        if data := source.output():
            pair.events[target] += target.receive(data)
        return
    what, who = move.split()
    already = {said for said, by in reported if by == who}
    if sides[who].state is not PreconState.TRIAL or "fail" in already or what in already:
        return
    if what == "late":
        pair.events[sides[who]] += sides[who].lane_late("")
    elif ("fail", who) not in reported:
        reported.add((what, who))
        pair.report(sides[who], "broken" if what == "fail" else None)


def test_no_candidate_left_ends_the_precon_and_tells_why() -> None:
    pair = Pair()
    pair.introduce()
    pair.propose("shm")
    pair.acceptor.answer((), (("shm", "switched off by PSP_SHM=0"),))
    pair.run()
    (answered,) = pair.take(pair.connector)
    assert isinstance(answered, Answered)
    assert answered.answer.rejected == (("shm", "switched off by PSP_SHM=0"),)
    assert pair.connector.state is pair.acceptor.state is PreconState.CLOSED


# ---- crossing, refusing, leaving -----------------------------------------------------------------


def test_a_crossed_call_is_parked_and_can_still_be_used() -> None:
    pair = Pair(Kind.ASK)
    pair.run()
    pair.listener.cross()
    pair.run()
    (welcomed,) = pair.take(pair.dialer)
    assert isinstance(welcomed, Welcomed)
    assert welcomed.crossed
    assert pair.dialer.state is pair.listener.state is PreconState.PARKED
    pair.take(pair.listener)
    pair.propose("tcp")
    pair.answer(0)
    assert pair.dialer.state is pair.listener.state is PreconState.TRIAL


def test_only_calls_are_crossed() -> None:
    pair = Pair(Kind.PEER)
    pair.run()
    pair.listener.cross()
    with pytest.raises(RemoteProtocolError, match="crossed"):
        pair.run()


def test_a_refusal_says_why() -> None:
    pair = Pair()
    pair.run()
    pair.listener.refuse(RefuseCode.NAME_IN_USE, "there is another b")
    pair.run()
    assert pair.take(pair.dialer) == [Refused(RefuseCode.NAME_IN_USE, "there is another b")]
    assert pair.dialer.state is PreconState.CLOSED


def test_bye_is_an_end_in_order_and_silence_is_not() -> None:
    for bye in (True, False):
        pair = Pair()
        pair.to_trial()
        pair.report(pair.connector)
        pair.report(pair.acceptor)
        pair.run()
        pair.take(pair.acceptor)
        pair.connector.closing()
        pair.run()
        assert [type(event) for event in pair.take(pair.acceptor)] == [PeerClosing]
        if bye:
            pair.connector.bye()
            pair.run()
            assert pair.take(pair.acceptor) == [Ended(True, PreconState.GUARD)]
        else:
            assert pair.acceptor.receive(b"") == [Ended(False, PreconState.GUARD)]
        assert pair.acceptor.receive(b"") == []


@pytest.mark.parametrize("state", [state for state in PreconState if state.value < 9])
def test_the_end_is_told_in_every_state(state: PreconState) -> None:
    machine = Handshake(Side.LISTENER, KEY, identity("b"))
    machine.state = state
    assert machine.receive(b"") == [Ended(False, state)]
