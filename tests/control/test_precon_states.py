"""The tables of states: complete, without dead ends, and refusing events that they do not list."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from enum import Enum

import pytest

from pscompy.control.handshake.states import LINK, REPORT, PreconEvent, PreconState, Report
from pscompy.control.handshake.tables import LocalProtocolError, RemoteProtocolError, step
from pscompy.control.phases import ON_ASK, ON_CONNECT, PHASE, Phase, PhaseEvent, Verdict

TABLES = {"precon": (LINK, PreconState.HELLO), "phase": (PHASE, Phase.LAZY)}


@pytest.mark.parametrize(("table", "start"), TABLES.values(), ids=TABLES)
def test_every_state_is_listed_and_reachable(
    table: Mapping[Enum, Mapping[Enum, Enum]], start: Enum
) -> None:
    assert set(table) == set(type(start))
    reached, front = {start}, [start]
    while front:
        for after in table[front.pop()].values():
            if after not in reached:
                reached.add(after)
                front.append(after)
    assert reached == set(table)


def test_every_event_of_a_precon_is_in_its_table() -> None:
    assert set().union(*LINK.values()) == set(PreconEvent)


def test_what_the_table_does_not_know_is_our_own_error() -> None:
    for state, event in itertools.product(PreconState, PreconEvent):
        if event in LINK[state]:
            assert step(LINK, state, event) is LINK[state][event]
        else:
            with pytest.raises(LocalProtocolError, match=event.name):
                step(LINK, state, event)


def test_nothing_leaves_the_closed_states() -> None:
    assert not LINK[PreconState.CLOSED]
    assert not PHASE[Phase.CLOSED]
    assert not REPORT[Report.FAILED]


def test_nothing_is_taken_before_the_proof() -> None:
    """Only the greeting and the proof lead out of the unauthenticated states."""
    assert set(LINK[PreconState.HELLO]) == {PreconEvent.HELLO}
    assert set(LINK[PreconState.PROOF]) == {PreconEvent.PROOF}


def test_every_phase_has_a_verdict_and_a_taken_precon_has_a_transition() -> None:
    for table in (ON_ASK, ON_CONNECT):
        assert set(table) == set(Phase)
        for phase, verdict in table.items():
            if verdict is Verdict.TAKE:
                assert PhaseEvent.TAKE in PHASE[phase]


def test_one_precon_wins_whoever_arrives_first() -> None:
    """The lower side dials and the higher side calls: never do both give way, and never do both
    win."""
    lower, higher = Phase.DIALING, Phase.ASKING
    assert ON_ASK[lower] is Verdict.CROSS
    assert ON_CONNECT[higher] is Verdict.TAKE
    assert ON_ASK[step(PHASE, lower, PhaseEvent.TAKE)] is Verdict.CROSS


def test_remote_errors_are_the_public_kind() -> None:
    from pscompy.errors import ProtocolError

    assert issubclass(RemoteProtocolError, ProtocolError)
    assert not issubclass(LocalProtocolError, ProtocolError)
