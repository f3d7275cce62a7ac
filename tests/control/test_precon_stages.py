"""Peers that die at every stage of a precon, after each step of sending or receiving."""

from __future__ import annotations

import socket as sockets
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from precon_pairs import identity

from pscompy import ConnectError, Session
from pscompy.control.addresses import Address
from pscompy.control.handshake.events import Introduced, Proposed, Welcomed
from pscompy.control.handshake.frames import Candidate, Choice, Kind, Proposal
from pscompy.control.handshake.handshake import Handshake, Side
from pscompy.control.handshake.keys import Key, find_key
from pscompy.control.handshake.states import LINK, PreconState

Make = Callable[..., Session]

STEPS = range(9)

# A peer without lanes never reaches GUARD nor, outside a World, PARKED. test_session_processes.py
# and test_ondemand.py let peers die in these states, test_rejoining.py in those of lost rails.
AGAIN = {PreconState.ANSWER_AGAIN, PreconState.TRIAL_AGAIN}
ELSEWHERE = {PreconState.PARKED, PreconState.GUARD, PreconState.CLOSED} | AGAIN


def play(precon: sockets.socket, machine: Handshake, steps: int) -> set[PreconState]:
    """Follow the protocol for `steps` steps, then reset the precon; returns the states passed
    through."""
    precon.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
    precon.settimeout(60)
    waited = {machine.state}
    with precon, suppress(OSError):
        for _ in range(steps):
            if data := machine.output():
                precon.sendall(data)
            elif machine.state is not PreconState.CLOSED:
                react(machine, precon.recv(65536))
            waited.add(machine.state)
    return waited


def react(machine: Handshake, data: bytes) -> None:
    for event in machine.receive(data):
        if isinstance(event, Introduced):
            machine.welcome()
        elif isinstance(event, Welcomed):
            machine.propose(Proposal((Candidate("tcp", 1, b"nonsense"),)))
        elif isinstance(event, Proposed):
            machine.answer((Choice(0, b"nonsense"),))


def dial(address: str, key: Key, steps: int) -> set[PreconState]:
    place = Address.parse(address).locations[0]
    machine = Handshake(Side.DIALER, key, identity("dying"), Kind.PLAIN)
    return play(sockets.create_connection((place.host, place.port)), machine, steps)


def test_the_steps_lead_through_the_table(session: Make) -> None:
    server = session("server")
    key = find_key(server._config)
    waited = dial(server.listen("127.0.0.1").address, key, len(STEPS))
    perhaps_at_once = {
        PreconState.INTRO,
        PreconState.WELCOME,
        PreconState.PROPOSAL,
        PreconState.TRIAL,
    }
    assert waited | perhaps_at_once | ELSEWHERE == set(LINK)


@pytest.mark.parametrize("steps", STEPS)
def test_a_dialer_that_dies(session: Make, steps: int) -> None:
    server = session("server")
    listening = server.listen("127.0.0.1")
    dial(listening.address, find_key(server._config), steps)
    client = session("client")
    client.connect(listening.address).send(b"well", timeout=60)
    assert bytes(listening.accept(60).recv(timeout=60)) == b"well"
    client.close()
    server.close()
    assert server._core.lanes == {}


@pytest.mark.parametrize("steps", STEPS)
def test_a_listener_that_dies(session: Make, steps: int) -> None:
    own = session("own", RETRY=1)
    key = find_key(own._config)
    with sockets.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    machine = Handshake(Side.LISTENER, key, identity("dying"))
                    play(listening.accept()[0], machine, steps)

        dying = threading.Thread(target=serve)
        dying.start()
        connection = own.connect(f"127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(ConnectError, match=r"ended the precon|no transport|reset by peer"):
            connection.open(60)
        listening.shutdown(sockets.SHUT_RDWR)
        dying.join(60)
    own.connect(own.listen().address).open(60)
    own.close()
    assert own._core.lanes == {}
