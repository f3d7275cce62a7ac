"""How much memory is locked, as docs/ib.md has it; run inside the guest (see test_guest.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pscompy.session import Session
from pscompy.testing import far as far_side
from pscompy.testing.process import BOUND, Far

BUFFER, WINDOW, SHARED, SENDS = 8192, 8, 32, 16
PEERS, MESSAGES = 3, 80
CONFIG = {
    "SHM": 0,
    "TCP": 0,
    "IB_BUFFER_SIZE": BUFFER,
    "IB_RECVQ_SIZE": WINDOW,
    "IB_SRQ_SIZE": SHARED,
    "IB_SEND_BUFFERS": SENDS,
    "IB_RDMA_PEERS": 2,
}


def locked() -> int:
    """Bytes of this process that adapters have pinned."""
    found = re.search(r"VmPin:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


@pytest.fixture
def peers() -> Iterator[list[Far]]:
    peers = [Far() for _ in range(PEERS)]
    yield peers
    for peer in peers:
        peer.close()


@pytest.mark.parametrize(("eager", "rings"), [("srq", 0), ("auto", 2), ("rdma", PEERS)])
def test_locked_memory(peers: list[Far], eager: str, rings: int) -> None:
    config = {**CONFIG, "IB_EAGER": eager}
    before = locked()
    with Session(config=config) as session:
        socket = session.listen("127.0.0.1")
        for peer in peers:
            peer(far_side.connect, socket.address, config)
            connection = socket.accept(timeout=BOUND)
            peer.begin(far_side.send, *[8] * MESSAGES)
            for _ in range(MESSAGES):
                connection.recv(timeout=BOUND)
            peer.result()
        assert locked() - before == BUFFER * (SHARED + SENDS + rings * WINDOW)
        for peer in peers:
            peer(far_side.close)
    assert locked() == before
