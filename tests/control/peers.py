"""A World without a launcher: sessions of one process that address each other by rank."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pscompy import Connection, Session

TRANSPORTS = ["shm", "tcp"]


def only(transport: str) -> dict[str, int]:
    """The configuration that leaves only this transport enabled."""
    return {name.upper(): 0 for name in TRANSPORTS if name != transport}


class Peer(Session):
    """One rank; `peers[r]` is its connection to rank r, which may be itself."""

    def __init__(self, rank: int, size: int, **config: object) -> None:
        self.rank = rank
        self._open(
            f"{rank:04}",
            config,
            rank=rank,
            job="a job of the tests",
            find_peer=lambda there: self.peers[there.rank]._record,
        )
        self.peers = [
            Connection(self._plain, self._new_record(rank=r, name=f"{r:04}")) for r in range(size)
        ]
        self.socket = self.listen("127.0.0.1")


@contextmanager
def world(size: int, **config: object) -> Iterator[list[Peer]]:
    """Open a session per rank; close them concurrently, as processes would."""
    ranks = [Peer(rank, size, **config) for rank in range(size)]
    for peer in ranks:
        for rank, connection in enumerate(peer.peers):
            connection._record.address = ranks[rank].socket.address
    try:
        yield ranks
    finally:
        closing = [threading.Thread(target=peer.close) for peer in ranks]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
