"""Three ranks in one process, each with a worker. Rank 0 is connected to itself by loop and to each
other rank by one transport. Only the control plane is replaced."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pscompy.api.c import _binding
from pscompy.api.request import Status  # noqa: F401 (importing it ties the binding to the core)
from pscompy.control import selection
from pscompy.control.conn import Conn
from pscompy.control.lane import ROLE_ACCEPTOR, ROLE_CONNECTOR, ROLE_SELF, Lane
from pscompy.control.worker import Worker
from pscompy.core import lib
from pscompy.discovery import registry
from pscompy.errors import from_status

RANKS = 3
EAGER_MAX = 2000
BOUND = 10.0


class Peer(_binding.Connection):
    """A connection that raises the library's exceptions."""

    def _exception(self, status: int, nbytes: int) -> BaseException:
        details = {"nbytes": nbytes} if status == lib.PSC_ERR_TRUNCATED else {}
        return from_status(status, "peer", **details)


@dataclass
class Rank:
    """A worker with all transports."""

    core: Worker
    worker: _binding.Worker

    @classmethod
    def create(cls, settings: Mapping[str, object]) -> Rank:
        config, found = registry.load(settings)
        core = Worker(config)
        core.transports.open(found, config)
        return cls(core, _binding.Worker(core.address))

    def lane(self, transport: str) -> Lane:
        (option,) = (it for it in self.core.transports.options if it.name == transport)
        assert not option.reason, option.reason
        return self.core.create_lane(option)

    def conn(self, rank: int) -> Conn:
        return self.core.create_connection(rank)

    def bound(self, conn: Conn, context: int) -> Peer:
        peer = Peer()
        peer._bind(self.worker, conn.address, context)
        return peer

    def install(self, conn: Conn, lane: Lane) -> None:
        assert lane.option.estimates is not None
        settings = selection.Settings(rendezvous=EAGER_MAX + 1)
        conn.begin_connecting()
        params = selection.parameters(lane.option.estimates, settings)
        conn.install([lane], params)


class World(_binding.Communicator):
    """Rank 0's view within one context."""

    def __init__(self, rank: Rank, conns: list[Conn], context: int) -> None:
        self._rank = rank
        self._conns = conns
        self._context = context
        self._bind(rank.worker, len(conns), context)

    def _peer(self, rank: int) -> Peer:
        return self._rank.bound(self._conns[rank], self._context)


class Fabric:
    """`worlds[c]` receives in context c; `senders[c][r]` sends from rank r to rank 0 in it."""

    def __init__(
        self, contexts: range, transports: tuple[str, ...], settings: Mapping[str, object]
    ) -> None:
        assert len(transports) == RANKS
        self.again = lambda: Fabric(contexts, transports, settings)
        self.ranks = [Rank.create(settings) for _ in transports]
        conns = [self.ranks[0].conn(rank) for rank in range(RANKS)]
        there = [conns[0], *(rank.conn(0) for rank in self.ranks[1:])]
        self.conns = [*conns, *there[1:]]
        for rank, transport in enumerate(transports):
            self._connect(rank, transport, conns[rank], there[rank])
        self.worlds = {context: World(self.ranks[0], conns, context) for context in contexts}
        self.senders = {
            context: [
                rank.bound(conn, context) for rank, conn in zip(self.ranks, there, strict=True)
            ]
            for context in contexts
        }

    def _connect(self, rank: int, transport: str, here: Conn, there: Conn) -> None:
        token = secrets.token_bytes(32)
        near = self.ranks[0].lane(transport)
        if rank == 0:
            near.connect(ROLE_SELF, token, near.address())
            self.until(lambda: near.up)
            self.ranks[0].install(here, near)
            return
        far = self.ranks[rank].lane(transport)
        addresses = near.address(), far.address()
        far.connect(ROLE_ACCEPTOR, token, addresses[0])
        near.connect(ROLE_CONNECTOR, token, addresses[1])
        self.until(lambda: near.up and far.up)
        self.ranks[0].install(here, near)
        self.ranks[rank].install(there, far)

    def progress(self) -> None:
        for rank in self.ranks:
            rank.worker.progress()

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + BOUND
        while not condition():
            assert time.monotonic() < deadline, "it does not happen"
            self.progress()

    def moving(self, call: Callable[[], Any]) -> Any:
        """Make a call that blocks on rank 0, while a thread drives the other ranks."""
        done = threading.Event()

        def run() -> None:
            while not done.wait(0.0005):
                for rank in self.ranks[1:]:
                    rank.worker.progress()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            return call()
        finally:
            done.set()
            thread.join()

    def counted(self, name: str) -> int:
        """Rank 0's value of a counter."""
        return self.ranks[0].core.counters()[name]

    def close(self) -> None:
        """Fail all connections first, because destroying a rank would wait for its peers."""
        for conn in self.conns:
            conn.fail(Conn.ERR_CLOSED)
        for _ in range(100):
            self.progress()
        for rank in self.ranks:
            rank.worker.close(rank.core.destroy)
