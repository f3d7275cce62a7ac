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
from pscompy.control.lane import ROLE_ACCEPTOR, ROLE_CONNECTOR, ROLE_SELF, Lane
from pscompy.control.worker import Engine
from pscompy.core import ffi, lib
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

    engine: Engine
    worker: _binding.Worker

    @classmethod
    def create(cls, settings: Mapping[str, object]) -> Rank:
        config, found = registry.load(settings)
        engine = Engine(config)
        engine.open(found, config)
        return cls(engine, _binding.Worker(engine.address))

    def lane(self, transport: str) -> Lane:
        (option,) = (it for it in self.engine.options if it.name == transport)
        assert not option.reason, option.reason
        return self.engine.create_lane(option)

    def handle(self, rank: int) -> Any:
        return self.engine.create_connection(rank)[1]

    def bound(self, handle: Any, context: int) -> Peer:
        peer = Peer()
        peer._bind(self.worker, int(ffi.cast("uintptr_t", handle)), context)
        return peer

    def install(self, handle: Any, lane: Lane) -> None:
        assert lane.option.estimates is not None
        settings = selection.Settings(rendezvous=EAGER_MAX + 1)
        self.engine.begin_connecting(handle)
        params = selection.parameters(lane.option.estimates, settings)
        self.engine.install(handle, [lane], params)


class World(_binding.Communicator):
    """Rank 0's view within one context."""

    def __init__(self, rank: Rank, handles: list[Any], context: int) -> None:
        self._rank = rank
        self._handles = handles
        self._context = context
        self._bind(rank.worker, len(handles), context)

    def _peer(self, rank: int) -> Peer:
        return self._rank.bound(self._handles[rank], self._context)


class Fabric:
    """`worlds[c]` receives in context c; `senders[c][r]` sends from rank r to rank 0 in it."""

    def __init__(
        self, contexts: range, transports: tuple[str, ...], settings: Mapping[str, object]
    ) -> None:
        assert len(transports) == RANKS
        self.again = lambda: Fabric(contexts, transports, settings)
        self.ranks = [Rank.create(settings) for _ in transports]
        handles = [self.ranks[0].handle(rank) for rank in range(RANKS)]
        there = [handles[0], *(rank.handle(0) for rank in self.ranks[1:])]
        self.handles = [
            *((self.ranks[0], handle) for handle in handles),
            *zip(self.ranks[1:], there[1:], strict=True),
        ]
        for rank, transport in enumerate(transports):
            self._connect(rank, transport, handles[rank], there[rank])
        self.worlds = {context: World(self.ranks[0], handles, context) for context in contexts}
        self.senders = {
            context: [
                rank.bound(handle, context) for rank, handle in zip(self.ranks, there, strict=True)
            ]
            for context in contexts
        }

    def _connect(self, rank: int, transport: str, here: Any, there: Any) -> None:
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
        return self.ranks[0].engine.counters()[name]

    def close(self) -> None:
        """Fail all connections first, because destroying a rank would wait for its peers."""
        for rank, handle in self.handles:
            rank.engine.fail(handle, rank.engine.ERR_CLOSED)
        for _ in range(100):
            self.progress()
        for rank in self.ranks:
            rank.worker.close(rank.engine.destroy)
