"""The software NI between two hosts: network namespaces joined by a single link."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from pscompy import Connection, Session
from tests.gateway.namespaces import TIMEOUT, Machine, why_no_namespaces
from tests.program import program

SIZES = [0, 8, 8000, 100_000, 3 << 20]


def work(session: Session, connection: Connection, sizes: list[int], last: bool) -> None:
    """Exchange messages of all sizes; the side that is not `last` says goodbye to the other."""
    from pscompy.testing.remote_side import payload

    connection.open(timeout=50)
    requests = [connection.irecv(bytearray(n), tag=n) for n in sizes]
    sends = [connection.isend(payload(n), tag=n) for n in sizes]
    for request, nbytes in zip(requests, sizes, strict=True):
        assert request.wait(timeout=50).nbytes == nbytes
    for send in sends:
        send.wait(timeout=50)
    known = connection.explain().as_dict()
    print(known["choice"], known["matching"], connection.stats["received_messages"], flush=True)
    if last:
        connection.recv(timeout=50)
    else:
        connection.send(b"goodbye", timeout=50)


def listens(sizes: list[int]) -> None:
    from pscompy import Session

    with Session() as session:
        socket = session.listen("10.1.1.1")
        print(socket.address, flush=True)
        work(session, socket.accept(timeout=50), sizes, last=False)


def connects(address: str, sizes: list[int]) -> None:
    from pscompy import Session

    with Session() as session:
        work(session, session.connect(address), sizes, last=True)


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
    listening = machine.start(
        *(here, sys.executable, "-c", program(listens, SIZES, uses=[work])),
        PSP_PORTALS_INTERFACE="10.1.1.1",
        **settings,
    )
    assert listening.stdout is not None
    address = listening.stdout.readline().strip()
    connecting = machine.start(
        *(there, sys.executable, "-c", program(connects, address, SIZES, uses=[work])),
        PSP_PORTALS_INTERFACE="10.1.1.9",
        **settings,
    )
    for process in (connecting, listening):
        told, trouble = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, trouble
        assert told.strip() == f"portals {matching} 5", trouble
