"""A peer is killed (SIGKILL) at each stage of the handshake, on either side; the stages are read
from the table of states.
"""

from __future__ import annotations

import pytest
from puppets import BOUND, ONLY, check_echo, die_at, listen, own_descriptors

import pscompy
from pscompy.control.handshake.states import LINK, PreconState
from tests.waiting import expect_soon

STAGES = sorted({after.name for moves in LINK.values() for after in moves.values()})
STAGES.remove(PreconState.CLOSED.name)  # the last state of every link
STAGES.remove(PreconState.PARKED.name)  # a state of links between the ranks of a world only
STAGES.remove(PreconState.ANSWER_AGAIN.name)  # of connections that have lost a rail:
STAGES.remove(PreconState.TRIAL_AGAIN.name)  # test_rejoining.py


@pytest.mark.parametrize("stage", STAGES)
def test_who_connects_to_us_dies(transport, stage, connect, start):
    link = connect(transport)
    before = own_descriptors()
    peer = start(ONLY[transport])
    peer(die_at, stage=stage)
    peer.begin(
        lambda here, address: here.session.connect(address).open(), address=link.sock.address
    )
    peer.wait()
    peer.end()
    expect_soon(lambda: own_descriptors() <= before)
    check_echo(link)


@pytest.mark.parametrize("stage", STAGES)
def test_whom_we_connect_to_dies(transport, stage, connect, start):
    link = connect(transport, RETRY=1)
    before = own_descriptors()
    peer = start(ONLY[transport])
    address = peer(listen)
    peer(die_at, stage=stage)
    c = link.session.connect(address)
    with pytest.raises((pscompy.ConnectError, pscompy.PeerLost)) as caught:
        c.open(BOUND)
        c.recv(timeout=BOUND)
    assert caught.value.peer
    peer.wait()
    peer.end()
    expect_soon(lambda: own_descriptors() <= before)
    check_echo(link)
