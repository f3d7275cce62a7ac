"""The software NI between two hosts: network namespaces joined by a single link."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.gateway.namespaces import TIMEOUT, Machine, why_no_namespaces

COMMON = """
import sys
from pscompy import Session
from pscompy.testing.remote_side import payload
SIZES = [0, 8, 8000, 100_000, 3 << 20]

def work(session, connection):
    connection.open(timeout=50)
    requests = [connection.irecv(bytearray(n), tag=n) for n in SIZES]
    sends = [connection.isend(payload(n), tag=n) for n in SIZES]
    for request, nbytes in zip(requests, SIZES):
        assert request.wait(timeout=50).nbytes == nbytes
    for send in sends:
        send.wait(timeout=50)
    known = connection.explain().as_dict()
    print(known["choice"], known["matching"], connection.stats["received_messages"], flush=True)
    if sys.argv[1:]:
        connection.recv(timeout=50)
    else:
        connection.send(b"goodbye", timeout=50)
"""
LISTENS = """
with Session() as session:
    socket = session.listen("10.1.1.1")
    print(socket.address, flush=True)
    work(session, socket.accept(timeout=50))
"""
CONNECTS = """
with Session() as session:
    work(session, session.connect(sys.argv[1]))
"""
SETTINGS = {
    "PSP_SHM": 0,
    "PSP_TCP": 0,
    "PSP_IB": 0,
    "PSP_PORTALS": 1,
    "PSP_PORTALS_PROVIDER": "software",
}


@pytest.fixture
def machine() -> Iterator[Machine]:
    if reason := why_no_namespaces():
        pytest.skip(reason)
    machine = Machine(modules=1, gateways=1)
    try:
        machine.open()
        yield machine
    finally:
        machine.close()


@pytest.mark.parametrize("matching", ["fabric", "software"])
def test_two_hosts(machine: Machine, matching: str) -> None:
    settings = {**SETTINGS, "PSP_PORTALS_MATCHING": int(matching == "fabric")}
    here, there = machine.module(1), machine.gateway(1)
    listens = machine.start(
        here, sys.executable, "-c", COMMON + LISTENS, PSP_PORTALS_INTERFACE="10.1.1.1", **settings
    )
    assert listens.stdout is not None
    address = listens.stdout.readline().strip()
    connects = machine.start(
        there,
        *(sys.executable, "-c", COMMON + CONNECTS, address),
        PSP_PORTALS_INTERFACE="10.1.1.9",
        **settings,
    )
    for process in (connects, listens):
        told, trouble = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, trouble
        assert told.strip() == f"portals {matching} 5", trouble
