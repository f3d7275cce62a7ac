"""Conformance cases: connections that are closed, and connections that fail."""

from __future__ import annotations

import pytest

from pscompy import Closed, ConnectionState, PeerLost, PscomError
from pscompy.testing import remote_side
from pscompy.testing.base import LARGE, Base, Link
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload


class Ends(Base):
    """Cases for the guarantees of `close`, `Closed` and `PeerLost`."""

    def test_closing_flushes_and_tells(self, link: Link) -> None:
        sizes = [10, link.eager_max, link.eager_max + 1, 8]
        requests = [link.c.isend(payload(n, i)) for i, n in enumerate(sizes)]
        link.far.begin(remote_side.receive, *sizes)
        link.c.close()
        link.far.result()
        for request in requests:
            request.wait(timeout=BOUND)
        assert link.far(remote_side.wait_closed) == "Closed"
        with pytest.raises(Closed):
            link.c.send(b"too late")

    def test_what_had_arrived_is_received_after_the_peer_closed(self, link: Link) -> None:
        sizes = (5, 100, min(1000, link.eager_max))  # a longer message waits for its receiver
        link.far(remote_side.send, *sizes)
        link.far(remote_side.close_connection)
        for place, nbytes in enumerate(sizes):
            assert link.c.recv(timeout=BOUND) == payload(nbytes, place)
        with pytest.raises(Closed):
            link.c.recv(timeout=BOUND)
        assert link.c.state is ConnectionState.CLOSED

    def test_a_synchronous_send_that_no_receive_has_matched_is_closed(self, link: Link) -> None:
        requests = [link.c.issend(payload(nbytes)) for nbytes in (0, 8, LARGE)]
        link.far.begin(remote_side.close_connection)
        for request in requests:
            with pytest.raises(Closed):
                request.wait(timeout=BOUND)
        link.far.result()

    def test_both_close_at_once(self, link: Link) -> None:
        link.far.begin(remote_side.close_connection)
        link.c.close()
        link.far.result()

    def test_many_connections_one_after_the_other(self, far: Far) -> None:
        for round_ in range(5):
            with self.joined(far) as link:
                link.far.begin(remote_side.echo, 1)
                link.c.send(payload(1000, round_), timeout=BOUND)
                assert link.c.recv(timeout=BOUND) == payload(1000, round_)
                link.far.result()

    def test_a_peer_that_is_killed_is_lost(self, link: Link) -> None:
        receive, large = link.c.irecv(), link.c.isend(bytes(LARGE))
        synchronous = link.c.issend(b"")
        link.far.kill()
        for request in (receive, large, synchronous):
            with pytest.raises(PeerLost):
                request.wait(timeout=BOUND)
        with pytest.raises((PeerLost, Closed)):
            link.c.send(b"nobody there")

    def test_a_peer_that_is_killed_while_it_sends_is_lost(self, link: Link) -> None:
        link.far(remote_side.start_sending, link.eager_max + 100_000)
        for _ in range(5):
            link.c.recv(timeout=BOUND)
        link.far.kill()
        with pytest.raises(PeerLost):
            for _ in range(100_000):
                link.c.recv(timeout=BOUND)

    def test_a_peer_that_is_killed_does_not_disturb_others(self, far: Far) -> None:
        with self.joined(far) as link:
            other = Far()
            try:
                socket = link.session.listen("127.0.0.1")
                other(remote_side.connect, socket.address, self.settings())
                victim = socket.accept(timeout=BOUND)
                waiting = victim.irecv()
                other.kill()
                with pytest.raises(PscomError):
                    waiting.wait(timeout=BOUND)
            finally:
                other.close()
            link.far.begin(remote_side.echo, 1)
            link.c.send(b"still there", timeout=BOUND)
            assert link.c.recv(timeout=BOUND) == b"still there"
            link.far.result()
