"""Entries of PSP_TCP_RAILS: addresses, networks and interfaces of this host."""

from __future__ import annotations

import pytest
from puppets import ONLY, Start, attach, check_echo

import pscompy

# Nobody has the first two (RFC 5737, RFC 3849); the last two are addresses of no interface.
FOREIGN = ["203.0.113.1", "2001:db8::1", "0.0.0.0", "::"]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("foreign", FOREIGN)
def test_an_address_of_another_host_is_no_rail(
    start: Start, caplog: pytest.LogCaptureFixture, foreign: str, place: int
) -> None:
    """The other rails keep their places in the list."""
    rails = ["127.0.0.1", "127.0.0.2"]
    rails.insert(place, foreign)
    here = {**ONLY["tcp"], "TCP_RAILS": ",".join(rails)}
    there = {**ONLY["tcp"], "TCP_RAILS": "127.0.0.3,127.0.0.4,127.0.0.5"}
    with pscompy.Session(config=here) as session:
        link = attach(session, session.listen("127.0.0.1"), start(there))
        assert link.c.explain().lanes == 2
        assert f"without rail {place}" in link.peer(lambda here: str(here.c.explain()))
        check_echo(link)
    assert f"no interface of this host matches rail {place}" in caplog.text


@pytest.mark.parametrize("foreign", FOREIGN)
def test_addresses_of_other_hosts_alone_name_the_variable(foreign: str) -> None:
    said = f"PSP_TCP_RAILS={foreign}: no interface of this host matches it"
    with (
        pytest.warns(match=said),
        pscompy.Session(config={"TCP_RAILS": foreign}) as session,
    ):
        assert session.transports["tcp"] == said
