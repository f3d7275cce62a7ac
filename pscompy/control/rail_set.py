"""Rail sets: the candidates that go together as lanes of one connection, rails of one transport, or
of several (PSP_RAILS). Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from pscompy.control.handshake.frames import Candidate, Proposal
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.limits import LANES_MAX
from pscompy.control.selection import RAILS, Option, Rail, why_not


def joined(options: Iterable[Option], names: tuple[str, ...]) -> list[Option]:
    """Return the options that PSP_RAILS (`names`) lists, in its order, because their rails go
    together; [] if the first one or all others are missing."""
    by_name = {option.name: option for option in options}
    found = [by_name[name] for name in names if name in by_name]
    return found if len(found) > 1 and found[0].name == names[0] else []


class Pick(NamedTuple):
    """A candidate that the acceptor chooses: its number in the proposal, and the rail here."""

    number: int
    rail: Rail


class Chosen(NamedTuple):
    """Candidates of `name` (a transport, or PSP_RAILS for a group) that become lanes of one
    connection; `reason` says why none, or not all, of the proposed ones were picked."""

    name: str
    picks: list[Pick]
    reason: str = ""


def choices(
    proposal: Proposal,
    options: Iterable[Option],
    here: Identity,
    there: Identity,
    names: tuple[str, ...] = (),
) -> Iterator[Chosen]:
    """Yield the acceptor's choices in the connector's order. Several candidates of one transport
    are its rails, and the rails that both sides have become lanes of one connection. The rails of
    several transports become lanes of one connection, too, if PSP_RAILS (here: `names`) names these
    transports on both sides."""
    mine = {option.name: option for option in options}
    numbered = enumerate(proposal.candidates)
    for (group, transport), rails in groupby(numbered, lambda it: it[1].rail_set):
        proposed = dict(rails)
        if group == 0:
            yield _choice(transport, proposed, mine.get(transport), here, there)
        else:
            yield _joint_choice(proposed, mine, here, there, names)


Proposed = Mapping[int, Candidate]
"""Candidates by their indices in the proposal."""


def _choice(
    transport: str, proposed: Proposed, option: Option | None, here: Identity, there: Identity
) -> Chosen:
    """Choose among the candidates of one transport."""
    if option is None:
        return Chosen(transport, [], "no such transport")
    if any(candidate.priority == 0 for candidate in proposed.values()):
        return Chosen(transport, [], "proposed with priority 0")
    if reason := why_not(option, here, there):
        return Chosen(transport, [], reason)
    by_rail = {candidate.lane: index for index, candidate in proposed.items()}
    rails = option.rails
    picks = [Pick(index, Rail(option, it)) for it, index in by_rail.items() if it in rails]
    return Chosen(transport, picks[:LANES_MAX], "" if picks else "has other rails")


def _joint_choice(
    proposed: Proposed,
    mine: Mapping[str, Option],
    here: Identity,
    there: Identity,
    names: tuple[str, ...],
) -> Chosen:
    """Choose among the candidates of several transports, of which each gets a lane at least.
    Nothing is chosen if the first transport cannot carry the connection, or no other joins it."""
    transports = dict.fromkeys(candidate.transport for candidate in proposed.values())
    found, missing = [], []
    for name in transports:
        those = {index: it for index, it in proposed.items() if it.transport == name}
        chosen = Chosen(name, [], "PSP_RAILS does not name it")
        if name in names:
            chosen = _choice(name, those, mine.get(name), here, there)
        if chosen.picks:
            found.append(chosen)
        else:
            missing.append(f"without {name}: {chosen.reason}")
    reason = "; ".join(missing)
    if len(found) < 2 or found[0].name != next(iter(transports)):
        return Chosen(RAILS, [], reason)
    picks: list[Pick] = []
    for number, chosen in enumerate(found, 1):
        later = len(found) - number
        picks += chosen.picks[: LANES_MAX - later - len(picks)]
    return Chosen(RAILS, picks, reason)
