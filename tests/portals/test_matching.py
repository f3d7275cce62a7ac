"""Matching in the interface: which receive gets a message, who is notified, and when matching is
off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from pscompy import Cancelled, Truncated, wait_all
from pscompy.testing import remote_side
from pscompy.testing.base import Base, Counted, Link
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload
from tests.portals.test_portals import ONLY, Faulty, check_exchange_on_both, two_connections

KIB8 = 8 << 10


@pytest.fixture
def far() -> Iterator[Far]:
    process = Far()
    yield process
    process.close()


def no_copy(counted: Counted, messages: int, moved: int = 0) -> None:
    """Check that this side copied nothing but `moved` bytes, which rendezvous fetched."""
    counts = counted()
    assert counts["tag_posted"] == counts["tag_matched"] == messages, counts
    assert counts["received_messages"] == messages
    assert counts["unexpected"] == 0, counts
    assert counts["copied_bytes"] == moved, counts


def flood(link: Link, sizes: list[int], room: int = 0) -> None:
    """The far process sends messages of these sizes to receives that are already posted."""
    buffers = [bytearray(max(nbytes, room)) for nbytes in sizes]
    requests = [link.c.irecv(buffer) for buffer in buffers]
    link.far.begin(remote_side.send, *sizes)
    wait_all(requests, timeout=BOUND)
    link.far.result()
    for place, nbytes in enumerate(sizes):
        assert buffers[place][:nbytes] == payload(nbytes, place), place


class TestMatching(Base):
    """Matching by the software NI."""

    transport = "portals"
    config: ClassVar = {**ONLY, "PORTALS_BUFFER_SIZE": "16k"}

    def test_expected_messages_land_in_their_buffers(self, link: Link) -> None:
        assert link.eager_max >= KIB8
        counted = link.counted()
        buffers = [bytearray(KIB8) for _ in range(40)]
        requests = [link.c.irecv(buffer, tag=place) for place, buffer in enumerate(buffers)]
        link.far(remote_side.send_tagged, *range(40), nbytes=KIB8)
        for place, status in enumerate(wait_all(requests, timeout=BOUND)):
            assert (status.tag, status.nbytes, status.source) == (place, KIB8, link.c)
            assert buffers[place] == payload(KIB8, place)
        no_copy(counted, 40)
        counts = counted()
        assert counts["far_eager_bcopy"] == 40
        assert counts["portals_tag_matched"] == 40
        assert counts["portals_tag_copied"] == 0  # the transport has not copied either

    def test_long_messages_land_there_too(self, link: Link) -> None:
        """Messages of up to 4 MiB are put into their buffers; longer ones are fetched."""
        sizes = [100_000, KIB8, 4 << 20, 0, link.eager_max + 1, 5 << 20]
        counted = link.counted()
        buffers = [bytearray(nbytes) for nbytes in sizes]
        requests = [link.c.irecv(buffer) for buffer in buffers]
        link.far.begin(remote_side.send, *sizes)
        wait_all(requests, timeout=BOUND)
        link.far.result()
        assert buffers == [payload(nbytes, place) for place, nbytes in enumerate(sizes)]
        no_copy(counted, len(sizes), 5 << 20)
        counts = counted()
        assert counts["far_tag_put_matched"] == 3
        assert counts["far_rndv_rts"] == counts["rndv_get"] == 1

    def test_long_messages_without_receive_are_fetched(self, link: Link) -> None:
        """Only the announcements arrive before the receives; the bytes are fetched later."""
        counted = link.counted()
        link.far.begin(remote_side.send_ahead, 4, 100_000)
        link.c.recv(tag=1, timeout=BOUND)
        assert link.c.probe(tag=0, timeout=BOUND).nbytes == 100_000
        buffer, short = bytearray(100_000), bytearray(10)
        link.c.recv(buffer, tag=0, timeout=BOUND)
        assert buffer == payload(100_000, 0)
        with pytest.raises(Truncated):
            link.c.recv(short, tag=0, timeout=BOUND)
        assert short == payload(100_000, 1)[:10]
        for place in (2, 3):
            assert link.c.recv(timeout=BOUND) == payload(100_000, place)
        link.far.result()
        counts = counted()
        assert counts["far_tag_put_missed"] > 0
        assert counts["far_tag_put_matched"] == 0
        assert counts["far_rndv_rts"] == counts["rndv_get"] == 4

    def test_a_sender_learns_that_receives_come_late(self, link: Link) -> None:
        """A sender whose message found no receive announces the next one, and then tries a put
        again."""
        counted = link.counted()
        for place in range(3):
            link.far.begin(remote_side.send_ahead, 1, 100_000)
            link.c.recv(tag=1, timeout=BOUND)
            assert link.c.recv(tag=0, timeout=BOUND) == payload(100_000, 0)
            link.far.result()
            assert counted()["far_tag_put_missed"] == (1, 1, 2)[place]
            assert counted()["far_rndv_rts"] == place + 1

    def test_a_put_has_a_longest_message(self, far: Far) -> None:
        few = {"PORTALS_RNDV_FRAGMENT_SIZE": 50_000}
        with self.joined(far, few, few) as link:
            counted = link.counted()
            for nbytes in (50_000, 50_001):
                buffer = bytearray(nbytes)
                request = link.c.irecv(buffer)
                link.far.begin(remote_side.send, nbytes)
                request.wait(timeout=BOUND)
                assert buffer == payload(nbytes)
                link.far.result()
            counts = counted()
            assert (counts["far_tag_put_matched"], counts["far_rndv_rts"]) == (1, 1)

    def test_nothing_but_the_message_is_written(self, link: Link) -> None:
        for nbytes in (10, 20_000):
            buffer = bytearray(b"*" * 30_000)
            request = link.c.irecv(buffer)
            link.far.begin(remote_side.send, nbytes)
            assert request.wait(timeout=BOUND).nbytes == nbytes
            link.far.result()
            assert buffer == payload(nbytes) + b"*" * (30_000 - nbytes)

    def test_what_came_before_its_receive(self, link: Link) -> None:
        counted = link.counted()
        link.far(remote_side.send_tagged, *range(12), nbytes=3000)
        for place in reversed(range(12)):
            buffer = bytearray(3000)
            link.c.recv(buffer, tag=place, timeout=BOUND)
            assert buffer == payload(3000, place)
        assert counted()["received_messages"] == 12

    def test_any_tag_takes_what_comes(self, link: Link) -> None:
        counted = link.counted()
        buffers = [bytearray(8) for _ in range(4)]
        tags = (5, -1, 7, -1)
        requests = [link.c.irecv(b, tag=tag) for b, tag in zip(buffers, tags, strict=True)]
        link.far(remote_side.send_tagged, 2**31 - 1, 5, 0, 7)
        statuses = wait_all(requests, timeout=BOUND)
        assert [status.tag for status in statuses] == [5, 2**31 - 1, 7, 0]
        assert buffers == [payload(8, status.tag) for status in statuses]
        no_copy(counted, 4)

    def test_who_waits_in_software_holds_back_who_overlaps(self, link: Link) -> None:
        counted = link.counted()
        first = link.c.irecv(tag=3)  # a receive without buffer is matched by the core
        held = link.c.irecv(bytearray(8), tag=3)
        free = link.c.irecv(bytearray(8), tag=4)
        any_tag = link.c.irecv(bytearray(8))
        assert counted.here()["tag_posted"] == 1
        link.far(remote_side.send_tagged, 3, 4, 3, 9)
        assert first.wait(timeout=BOUND) == payload(8, 3)
        assert [r.wait(timeout=BOUND).tag for r in (held, free, any_tag)] == [3, 4, 9]
        counts = counted()
        # posted when no earlier receive held them back
        assert counts["tag_posted"] == counts["tag_matched"] == 3

    def test_who_is_cancelled_holds_nobody_back(self, link: Link) -> None:
        counted = link.counted()
        first = link.c.irecv(tag=3)
        held = [link.c.irecv(bytearray(8), tag=3) for _ in range(3)]
        assert counted.here()["tag_posted"] == 0
        assert first.cancel()
        assert counted.here()["tag_posted"] == 3
        link.far(remote_side.send_tagged, 3, 3, 3)
        wait_all(held, timeout=BOUND)
        no_copy(counted, 3)

    def test_a_message_is_cut_to_its_receive(self, link: Link) -> None:
        for nbytes in (500, 50_000):
            buffer = bytearray(100)
            request = link.c.irecv(buffer)
            link.far.begin(remote_side.send, nbytes, 3)
            with pytest.raises(Truncated) as caught:
                request.wait(timeout=BOUND)
            assert caught.value.nbytes == nbytes
            assert buffer == payload(nbytes)[:100]
            assert link.c.recv(timeout=BOUND) == payload(3, 1)
            link.far.result()

    def test_a_cancelled_receive_is_out_of_the_list(self, link: Link) -> None:
        first, second = bytearray(8), bytearray(8)
        cancelled = link.c.irecv(first, tag=1)
        kept = link.c.irecv(second, tag=1)
        assert cancelled.cancel()
        with pytest.raises(Cancelled):
            cancelled.wait(timeout=BOUND)
        link.far(remote_side.send_tagged, 1)
        kept.wait(timeout=BOUND)
        assert (first, second) == (bytes(8), payload(8, 1))

    def test_a_receive_ends_with_its_connection(self, far: Far) -> None:
        with self.joined(far) as link:
            requests = [link.c.irecv(bytearray(100)) for _ in range(5)]
            far(remote_side.close_connection)
            for request in requests:
                with pytest.raises(Exception, match="closed"):
                    request.wait(timeout=BOUND)

    def test_one_side_can_turn_it_off(self, far: Far) -> None:
        off = {"PORTALS_MATCHING": 0}
        for here, there, why in ((off, {}, "MATCHING=0"), ({}, off, "peer"), (off, off, "=0")):
            with self.joined(far, here, there) as link:
                known = link.c.explain().as_dict()
                assert known["matching"] == "software"
                assert why in known["matching_reason"]
                assert f"matched: in software ({known['matching_reason']})" in str(link.c.explain())
                counted = link.counted()
                request = link.c.irecv(bytearray(100))
                far.begin(remote_side.send, 100, 50_000)
                request.wait(timeout=BOUND)
                assert link.c.recv(timeout=BOUND) == payload(50_000, 1)
                far.result()
                assert counted()["tag_posted"] == 0

    def test_explain_says_that_the_fabric_matches(self, link: Link) -> None:
        assert link.c.explain().as_dict()["matching"] == "fabric"
        assert "matched: in the fabric" in str(link.c.explain())


class TestMatchingInTrouble(Faulty):
    """Faults of the wire and in other table entries do not change the matching."""

    transport = "portals"
    config: ClassVar = ONLY

    def test_every_message_finds_its_receive(self, link: Link) -> None:
        counted = link.counted()
        sizes = [(place * 37) % 3000 for place in range(1000)]
        sizes[::100] = [100_000] * 10
        flood(link, sizes)
        counts = counted()
        no_copy(counted, len(sizes), counts["rndv_get"] * 100_000)
        assert counts["rndv_get"] + counts["far_tag_put_matched"] == 10

    def test_what_came_long_before_its_receive(self, link: Link) -> None:
        for _ in range(10):
            link.far.begin(remote_side.send_ahead, 20, 50_000)
            link.c.recv(tag=1, timeout=BOUND)
            for place in range(20):
                assert link.c.recv(tag=0, timeout=BOUND) == payload(50_000, place)
            link.far.result()


class TestMatchingWithAnEntryThatCloses(Faulty):
    """Some messages are dropped, too, so resent ones arrive late. Every receive has room for
    every message, because a message truncated by a wrong receive would be lost."""

    transport = "portals"
    config: ClassVar = ONLY
    faults: ClassVar = {"disable_tables": 25_000, "fail_acks": 5_000}

    def test_nothing_is_lost_or_overtaken(self, link: Link) -> None:
        counted = link.counted()
        while counted.here()["portals_tag_enables"] < 200:
            flood(link, [(place * 37) % 3000 for place in range(200)], room=3000)
        counts = counted()
        assert counts["tag_posted"] == counts["tag_matched"] == counts["received_messages"]
        assert counts["unexpected"] == 0, counts
        assert counts["far_portals_disabled"] >= 200, counts
        assert counts["far_portals_resends"] >= 200, counts
        assert counts["portals_tag_held"] > 0, counts


def test_more_connections_than_there_is_room_for(far: Far) -> None:
    """The event queue has room for the messages of one connection only."""
    with two_connections(far, {**ONLY, "PORTALS_EQ_SIZE": 64}) as (first, second):
        assert first.explain().matching is None
        assert "PSP_PORTALS_EQ_SIZE" in str(second.explain().matching)
        check_exchange_on_both(far, first, second, 20)
