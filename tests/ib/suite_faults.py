"""The end of connections, and failures, over ib; run inside the guest (see test_suites.py), as
root.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from pscompy import PeerLost, PscomError
from pscompy.api.session import Session
from pscompy.testing import remote_side
from pscompy.testing.base import Base, Link
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload
from tests.ib.devices import FEW_BUFFERS, set_port


@pytest.fixture
def port() -> Iterator[None]:
    """Sets the port up again after the test."""
    yield
    set_port(0, "up")


class TestPortDown(Base):
    transport = "ib"
    config: ClassVar = FEW_BUFFERS

    def test_what_is_under_way_fails_and_a_new_connection_works(self, far: Far, port: None) -> None:
        with self.joined(far) as link:
            self._echo(link)
            set_port(0, "down")
            with pytest.raises(PscomError) as caught:
                link.c.send(payload(100), timeout=BOUND)
                link.c.recv(timeout=BOUND)
            print(type(caught.value).__name__, caught.value)
            set_port(0, "up")
        with self.joined(far) as link:
            self._echo(link)

    def test_the_next_transport_is_tried(self, far: Far, port: None) -> None:
        config = {**FEW_BUFFERS, "SHM": 0, "IB_CONNECT_TIMEOUT": 3}
        with Session(config=config) as session:
            far.session = session
            socket = session.listen("127.0.0.1")
            for expected in ("ib", "tcp", "ib"):
                set_port(0, "down" if expected == "tcp" else "up")
                far(remote_side.connect, socket.address, config)
                connection = socket.accept(timeout=BOUND)
                assert connection.transport == expected, str(connection.explain())
                far(remote_side.close)
                connection.close()
            far.session = None

    @staticmethod
    def _echo(link: Link) -> None:
        link.far.begin(remote_side.echo, 1)
        link.c.send(payload(100), timeout=BOUND)
        assert link.c.recv(timeout=BOUND) == payload(100)
        link.far.result()


class TestKilled(Base):
    """Only the adapter notices the peer's death, because the precon does not stay open."""

    transport = "ib"
    config: ClassVar = {**FEW_BUFFERS, "GUARD": 0, "IB_KEEPALIVE": 1, "IB_TIMEOUT": 10}

    def test_the_adapter_gives_up_asking(self, link: Link) -> None:
        waiting = link.c.irecv()
        link.far.kill()
        with pytest.raises(PeerLost, match=r"does not answer.*retry counter exceeded"):
            waiting.wait(timeout=BOUND)

    def test_what_was_sent_before_comes_first(self, link: Link) -> None:
        link.far(remote_side.send, 100, 100)
        link.far.kill()
        assert [len(link.c.recv(timeout=BOUND)) for _ in range(2)] == [100, 100]
        with pytest.raises(PeerLost):
            link.c.recv(timeout=BOUND)
