"""Conformance cases: messages of all sizes, orders, tags and shapes."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from pscompy import Cancelled, Timeout, Truncated, wait_all
from pscompy.testing import remote_side
from pscompy.testing.base import LARGE, Base, Link
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload

EAGER = ("eager_short", "eager_bcopy", "eager_zcopy")
# Scheme -> the counter that a rendezvous increments on the sending side; for get, that of the
# receiver (`far_`), which issues the gets.
RENDEZVOUS = {"put": "rndv_put", "get": "far_rndv_get", "am": "rndv_am"}


class Messages(Base):
    """Cases for the guarantees of `send`, `recv`, `probe` and related calls."""

    def test_every_size_around_every_threshold(self, link: Link) -> None:
        for nbytes in link.sizes():
            counted = link.counted()
            link.far.begin(remote_side.receive_and_answer, nbytes)
            link.c.send(payload(nbytes), timeout=BOUND)
            # the peer's empty answer also brings the credits that the next send needs
            assert link.c.recv(timeout=BOUND) == b""
            link.far.result()
            counts = counted()
            assert counts["sent_messages"] == counts["far_received_messages"] == 1, nbytes
            assert counts["sent_bytes"] == counts["far_received_bytes"] == nbytes
            eager = sum(counts[name] for name in EAGER)
            assert (eager, counts["rndv_rts"]) == (
                (1, 0) if nbytes <= link.eager_max else (0, 1)
            ), f"{nbytes} bytes, eager up to {link.eager_max}: {counts}"
            if counts["rndv_rts"]:
                moved = counts[RENDEZVOUS[link.rendezvous]]
                assert moved == 1, f"{nbytes} bytes by {link.rendezvous}: {counts}"

    def test_every_size_comes_back(self, link: Link) -> None:
        for nbytes in link.sizes():
            link.far.begin(remote_side.echo, 1)
            link.c.send(payload(nbytes), tag=nbytes, timeout=BOUND)
            buffer = bytearray(nbytes)
            status = link.c.recv(buffer, timeout=BOUND)
            link.far.result()
            assert (status.tag, status.nbytes, status.source) == (nbytes, nbytes, link.c)
            assert buffer == payload(nbytes)

    def test_large(self, link: Link) -> None:
        link.far.begin(remote_side.echo, 1)
        link.c.send(payload(self.large), timeout=BOUND)
        assert link.c.recv(timeout=BOUND) == payload(self.large)
        link.far.result()

    def test_both_directions_at_once(self, link: Link) -> None:
        sizes = [LARGE, 0, link.eager_max + 1, 8, link.eager_max, 1 << 20, LARGE, 100_000]
        link.far.begin(remote_side.exchange, sizes)
        sends = [link.c.isend(payload(n, i), tag=i) for i, n in enumerate(sizes)]
        receives = [link.c.irecv(tag=i) for i in range(len(sizes))]
        came = wait_all(receives, timeout=BOUND)
        wait_all(sends, timeout=BOUND)
        link.far.result()
        assert came == [payload(n, i) for i, n in enumerate(sizes)]

    def test_order_is_kept_whatever_the_sizes(self, link: Link) -> None:
        dice = random.Random(1)
        choices = [0, 8, 300, 5000, link.eager_max, link.eager_max + 1, 200_000]
        sizes = [dice.choice(choices) for _ in range(150)]
        link.far.begin(remote_side.send, *sizes)
        for place, nbytes in enumerate(sizes):
            assert link.c.recv(timeout=BOUND) == payload(nbytes, place), place
        link.far.result()

    def test_what_nobody_expects_is_kept(self, link: Link) -> None:
        counted = link.counted()
        link.far.begin(remote_side.flood, 800, 100)
        link.far.result()  # all sends complete, because the messages fit into the window
        for place in range(800):
            assert link.c.recv(timeout=BOUND) == payload(100, place)
        counts = counted()
        assert counts["unexpected"] > 400
        assert counts["received_messages"] == 800

    def test_a_flood_beyond_the_window_waits_for_its_receiver(self, far: Far) -> None:
        small = {"EAGER_WINDOW": "256k", "UNEXPECTED_MAX": "64k"}
        with self.joined(far, small, small) as link:
            nbytes = min(link.eager_max, 4000)
            count = (1 << 20) // nbytes
            counted = link.counted()
            far.begin(remote_side.flood, count, nbytes)
            deadline = time.monotonic() + BOUND
            # wait until more bytes are unexpected than the eager window allows in flight
            while counted.here()["unexpected"] * nbytes < 400_000:
                assert time.monotonic() < deadline, counted.here()
                link.session.progress()
            for place in range(count):
                assert link.c.recv(timeout=BOUND) == payload(nbytes, place)
            far.result()
            counts = counted()
            assert counts["far_credits_exhausted"] > 0, counts
            assert counts["far_rndv_rts"] > 0, counts

    def test_large_messages_that_nobody_expects(self, link: Link) -> None:
        link.far.begin(remote_side.flood, 20, link.eager_max + 1)
        for place in range(20):
            assert link.c.recv(timeout=BOUND) == payload(link.eager_max + 1, place)
        link.far.result()

    @pytest.mark.parametrize("eager", [True, False], ids=["eager", "rendezvous"])
    def test_a_message_passes_many_that_nobody_expects(self, link: Link, eager: bool) -> None:
        nbytes = 8 if eager else link.eager_max + 1
        link.far.begin(remote_side.flood_and_send, 2000, nbytes)
        assert link.c.recv(tag=1, timeout=BOUND) == b"wanted"
        buffer = bytearray(nbytes)
        for _ in range(2000):
            link.c.recv(buffer, tag=0, timeout=BOUND)
        link.far.result()

    def test_tags_select(self, link: Link) -> None:
        link.far(remote_side.send_tagged, 5, 3, 3, 7, 2**31 - 1)
        for tag in (2**31 - 1, 3, 7):
            data, status = link.c.recv_status(tag=tag, timeout=BOUND)
            assert data == payload(8, tag)
            assert status.tag == tag
        rest = [link.c.recv_status(timeout=BOUND)[1].tag for _ in range(2)]
        assert rest == [5, 3]

    def test_receives_are_matched_in_their_order(self, link: Link) -> None:
        requests = [link.c.irecv(tag=tag) for tag in (9, -1, 9, 4)]
        link.far(remote_side.send_tagged, 9, 4, 9, 4)
        came = wait_all(requests, timeout=BOUND)
        assert came == [payload(8, 9), payload(8, 4), payload(8, 9), payload(8, 4)]

    @pytest.mark.parametrize("eager", [True, False], ids=["eager", "rendezvous"])
    def test_truncation_takes_the_message_and_tells_its_length(
        self, link: Link, eager: bool
    ) -> None:
        nbytes = min(link.eager_max, 1000) if eager else link.eager_max + 1000
        link.far.begin(remote_side.send, nbytes, nbytes, 3)
        for place in (0, 1):  # the message may arrive before the receive is posted, or after it
            buffer = bytearray(100)
            with pytest.raises(Truncated) as caught:
                link.c.recv(buffer, timeout=BOUND)
            assert caught.value.nbytes == nbytes
            assert buffer == payload(nbytes, place)[:100]
        assert link.c.recv(timeout=BOUND) == payload(3, 2)
        link.far.result()

    @pytest.mark.parametrize("eager", [True, False], ids=["eager", "rendezvous"])
    def test_a_cancelled_receive_takes_nothing(self, link: Link, eager: bool) -> None:
        nbytes = 10 if eager else link.eager_max + 10
        request = link.c.irecv(bytearray(nbytes))
        assert request.cancel()
        with pytest.raises(Cancelled):
            request.wait(timeout=BOUND)
        link.far.begin(remote_side.send, nbytes)
        assert link.c.recv(timeout=BOUND) == payload(nbytes)
        link.far.result()

    @pytest.mark.parametrize("eager", [True, False], ids=["eager", "rendezvous"])
    def test_probe_takes_nothing(self, link: Link, eager: bool) -> None:
        nbytes = 11 if eager else link.eager_max + 11
        assert link.c.iprobe() is None
        link.far.begin(remote_side.send, nbytes, tag=6)
        for _ in range(2):
            status = link.c.probe(tag=6, timeout=BOUND)
            assert (status.tag, status.nbytes, status.source) == (6, nbytes, link.c)
        assert link.c.iprobe(tag=5) is None
        assert link.c.recv(tag=6, timeout=BOUND) == payload(nbytes)
        link.far.result()

    def test_lists_of_buffers_are_one_message(self, link: Link) -> None:
        for nbytes in (100, link.eager_max, link.eager_max + 1, 1 << 20):
            whole = payload(nbytes)
            cuts = [0, *sorted(random.Random(nbytes).choices(range(nbytes), k=30)), nbytes]
            pieces = [whole[a:b] for a, b in itertools.pairwise(cuts)]
            link.far.begin(remote_side.echo, 1)
            link.c.send(pieces, timeout=BOUND)
            parts = [bytearray(nbytes // 3), bytearray(0), bytearray(nbytes - nbytes // 3)]
            assert link.c.recv(parts, timeout=BOUND).nbytes == nbytes
            assert b"".join(parts) == whole
            link.far.result()

    def test_a_synchronous_send_ends_after_its_receive_has_matched(self, link: Link) -> None:
        for nbytes in (0, 8, link.eager_max, link.eager_max + 1, 1 << 20):
            request = link.c.issend(payload(nbytes), tag=1)
            link.far.begin(remote_side.pass_back, 2)
            link.c.send(b"", tag=2, timeout=BOUND)
            # the message has arrived before this one, and a premature answer before its answer
            assert link.c.recv(tag=2, timeout=BOUND) == b""
            assert not request.test()
            link.far.result()
            link.far.begin(remote_side.receive, nbytes)
            request.wait(timeout=BOUND)
            link.far.result()

    def test_a_synchronous_send_meets_a_posted_receive(self, link: Link) -> None:
        for nbytes in (0, 8, link.eager_max, link.eager_max + 1, LARGE):
            counted = link.counted()
            link.far.begin(remote_side.receive, nbytes)
            link.c.ssend(payload(nbytes), timeout=BOUND)
            link.far.result()
            assert counted()["rndv_rts"] == 1, nbytes

    def test_a_time_out_takes_nothing(self, link: Link) -> None:
        for wait in (link.c.recv, link.c.probe):
            with pytest.raises(Timeout):
                wait(timeout=0.02)
        link.far(remote_side.send, 50)
        assert link.c.recv(timeout=BOUND) == payload(50)

    @pytest.mark.parametrize("nbytes", [10, LARGE])
    def test_who_sleeps_is_woken(self, far: Far, nbytes: int) -> None:
        with self.joined(far, {"SPIN_US": 0}, {"SPIN_US": 0}) as link:
            for _ in range(3):
                link.far.begin(remote_side.send_later, 0.05, nbytes)
                assert link.c.recv(timeout=BOUND) == payload(nbytes)
                link.far.result()
                link.far.begin(remote_side.receive_later, 0.05, nbytes)
                link.c.send(payload(nbytes), timeout=BOUND)
                link.far.result()
