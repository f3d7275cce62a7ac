"""Connections for tests of messages, made without the control plane's thread and negotiation;
workers, transports and lanes are real.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import struct
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from pscompy.api.c import _binding
from pscompy.api.request import Status  # noqa: F401 (importing it ties the binding to the core)
from pscompy.control import selection
from pscompy.control.conn import Conn
from pscompy.control.lane import ROLE_ACCEPTOR, ROLE_CONNECTOR, ROLE_SELF, Lane
from pscompy.control.worker import Worker
from pscompy.core import lib
from pscompy.discovery import registry
from pscompy.errors import from_status

COME_UP_SECONDS = 60.0


class Peer(_binding.Connection):
    """A connection whose errors name its side."""

    name = "?"

    def _exception(self, status: int, nbytes: int) -> BaseException:
        sized = (lib.PSC_ERR_TRUNCATED, lib.PSC_ERR_NO_MEMORY)
        details = {"nbytes": nbytes} if status in sized else {}
        return from_status(status, self.name, peer=self.name, **details)


@dataclass
class Side:
    """One worker with one transport, as in a session."""

    core: Worker
    worker: _binding.Worker
    option: selection.Option
    conns: list[Conn] = field(default_factory=list)

    @classmethod
    def create(cls, transport: str, **settings: object) -> Side:
        config, found = registry.load(settings)
        core = Worker(config)
        core.transports.open([it for it in found if it.name == transport], config)
        (option,) = core.transports.options
        assert not option.reason, option.reason
        return cls(core, _binding.Worker(core.address), option)

    def connection(self, name: str, rank: int = -1, context: int = 1) -> Peer:
        conn = self.core.create_connection(rank)
        self.conns.append(conn)
        peer = Peer()
        peer.name = name
        peer._bind(self.worker, conn.address, context)
        self.worker.retain(peer)
        return peer

    def install(self, conn: Conn, lane: Lane, scheme: str, eager_max: int | None) -> None:
        settings = selection.Settings(scheme=scheme)
        if eager_max is not None:
            settings = selection.Settings(rendezvous=eager_max + 1, scheme=scheme)
        assert self.option.estimates is not None
        params = selection.parameters(self.option.estimates, settings)
        conn.begin_connecting()
        conn.install([lane], params)

    def close(self) -> None:
        self.worker.close(self.core.destroy)


@dataclass
class Pair:
    """The two ends of one connection. The loop transport connects a worker to itself; then both
    are the same object."""

    left: Peer
    right: Peer
    sides: list[Side]
    lanes: list[Lane]
    scheme: str = "auto"
    eager_max: int | None = None

    @property
    def one_ended(self) -> bool:
        return len(self.sides) == 1

    def connect(self) -> None:
        """Connect the lanes and open the connection."""
        token = secrets.token_bytes(32)
        addresses = [lane.address() for lane in self.lanes]
        roles = [ROLE_SELF] if self.one_ended else [ROLE_CONNECTOR, ROLE_ACCEPTOR]
        for lane, role, address in zip(self.lanes, roles, reversed(addresses), strict=True):
            lane.connect(role, token, address)
        deadline = time.monotonic() + COME_UP_SECONDS
        while not all(lane.up for lane in self.lanes):
            failed = [lane.reason for lane in self.lanes if lane.failed]
            assert not failed, failed
            assert time.monotonic() < deadline, "the lanes do not come up"
            self.progress()
        for side, lane in zip(self.sides, self.lanes, strict=True):
            side.install(side.conns[0], lane, self.scheme, self.eager_max)

    def progress(self) -> None:
        for side in self.sides:
            if side.worker.address:
                side.worker.progress()

    def wait(self, *requests: _binding.Request) -> list[Any]:
        """Wait for requests of both ends; one thread drives both."""
        deadline = time.monotonic() + COME_UP_SECONDS
        while sum(not request.test() for request in requests):  # test every request each time
            assert time.monotonic() < deadline, f"{requests} do not end"
            self.progress()
        return [request.result() for request in requests]

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + COME_UP_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it does not happen"
            self.progress()

    def settle(self, passes: int = 50) -> None:
        """Drive progress until all messages in flight have arrived, however late the kernel
        delivers them. Messages that are stuck because their receiver does not read are given up
        after half a second."""
        deadline = time.monotonic() + 0.5
        while True:
            for _ in range(passes):
                self.progress()
            if not unacknowledged() or time.monotonic() > deadline:
                return

    def close(self) -> None:
        """Close both ends before either is destroyed, because destroying one waits for the
        other."""
        for side in self.sides:
            for conn in side.conns if side.worker.address else ():
                conn.close()
        self.settle()
        for side in self.sides:
            side.close()


def unacknowledged() -> int:
    """How many bytes the sockets of this process have sent that the peer has not acknowledged."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # no socket, or the descriptor of listdir itself
            total += struct.unpack("i", fcntl.ioctl(int(name), termios.TIOCOUTQ, bytes(4)))[0]
    return total


def make_pair(
    transport: str,
    *,
    scheme: str = "auto",
    eager_max: int | None = None,
    ranks: tuple[int, int] = (-1, -1),
    up: bool = True,
    **settings: object,
) -> Pair:
    sides = [Side.create(transport, **settings)]
    left = sides[0].connection("left", ranks[0])
    right = left
    if transport != "loop":
        sides.append(Side.create(transport, **settings))
        right = sides[1].connection("right", ranks[1])
    lanes = [side.core.create_lane(side.option) for side in sides]
    pair = Pair(left, right, sides, lanes, scheme, eager_max)
    if up:
        pair.connect()
    return pair


@pytest.fixture
def make() -> Iterator[Callable[..., Pair]]:
    pairs = []

    def build(*args: Any, **kwargs: Any) -> Pair:
        pairs.append(make_pair(*args, **kwargs))
        return pairs[-1]

    yield build
    for pair in pairs:
        pair.close()


@pytest.fixture(params=["loop", "shm", "tcp"])
def pair(request: pytest.FixtureRequest, make: Callable[..., Pair]) -> Pair:
    return make(request.param)


@pytest.fixture
def loop_pair(make: Callable[..., Pair]) -> Pair:
    """One worker that is connected to itself and receives its own messages."""
    return make("loop")


SIZES = (10, 30_000, 3_000_000)  # bytes: eager, and by rendezvous


@pytest.fixture(params=SIZES)
def nbytes(request: pytest.FixtureRequest) -> int:
    return int(request.param)
