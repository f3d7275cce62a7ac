"""The amount of locked memory, as docs/ib.md describes it; run inside the guest (see
test_suites.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pscompy.api.session import Session
from pscompy.testing import remote_side
from pscompy.testing.process import BOUND, Far
from tests.program import program

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


@pytest.fixture(scope="module")
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
            peer(remote_side.connect, socket.address, config)
            connection = socket.accept(timeout=BOUND)
            peer.begin(remote_side.send, *[8] * MESSAGES)
            for _ in range(MESSAGES):
                connection.recv(timeout=BOUND)
            peer.result()
        assert locked() - before == BUFFER * (SHARED + SENDS + rings * WINDOW)
        for peer in peers:
            peer(remote_side.close)
    assert locked() == before


# ---- memory that cannot be registered ------------------------------------------


def exchange_with_little_memory() -> None:
    import resource

    from pscompy import PscomError, World

    resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
    with World() as world:
        peer = world[1 - world.rank]
        try:
            if world.rank == 0:
                peer.send(bytes(4 << 20))
            else:
                assert peer.recv() == bytes(4 << 20)
            print("rank", world.rank, "arrived", peer.stats["rndv_am"], flush=True)
        except PscomError as error:
            print("rank", world.rank, type(error).__name__, error, flush=True)
        raise SystemExit(0)


def ranks_with_little_memory(**variables: str) -> list[str]:
    """The output of two ranks that may lock one MiB, most of which their buffers take. They run
    without root's rights, which would lift the limit."""
    settings = {"PSP_SHM": "0", "PSP_TCP": "0", "PSP_IB_SRQ_SIZE": "32", "PSP_IB_SEND_BUFFERS": "8"}
    text = program(exchange_with_little_memory)
    setpriv = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", text]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pscompy",
            "run",
            "-n",
            "2",
            "--",
            *setpriv,
            sys.executable,
            "-c",
            text,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **settings, **variables},
    )
    print(done.stdout, done.stderr)
    return sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))


def test_what_cannot_be_registered_travels_in_messages() -> None:
    printed = ranks_with_little_memory()
    assert printed[0].startswith("rank 0 arrived")
    assert printed[1] == "rank 1 arrived 0"


def test_without_fallbacks_the_connection_fails() -> None:
    printed = ranks_with_little_memory(PSP_IB_RNDV_FALLBACKS="0")
    assert printed[0].startswith("rank 0 TransportError")
    assert "4194304 bytes cannot be registered" in printed[0]
    assert "PSP_IB_RNDV_FALLBACKS=0" in printed[0]
    assert printed[1].startswith("rank 1 ")
    assert "arrived" not in printed[1]
