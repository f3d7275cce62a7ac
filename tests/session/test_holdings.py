"""The counters of caches and pools in `session.stats` move with use and come back after it."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from pooled import MIB, block, driven, drop_view, take_view
from puppets import BOUND

import pscompy
from tests.waiting import expect_soon

MANY = 1000
PAGE = Path(__file__).parents[2] / "docs/troubleshooting.md"


def send_many(here, count, nbytes):
    for tag in range(count):
        here.c.send(bytes(nbytes), tag=tag)


def send_am(here, nbytes):
    here.c.am_send(1, b"", bytes(nbytes))


def test_receives_take_requests_and_buckets(link):
    room = np.empty(8, np.uint8)

    def none_used():
        link.session.progress()  # frees those that await delivery
        return link.session.stats["requests_used"] == 0

    expect_soon(none_used, "that the receive of the greeting is freed")
    requests = [link.c.irecv(room, tag=tag) for tag in range(MANY)]
    link.peer(send_many, MANY, 8)
    requests[-1].wait(BOUND)  # a search among many makes the index
    for request in requests:
        request.wait(BOUND)
    expect_soon(none_used, "that all receives are freed")
    after = link.session.stats
    assert after["requests"] >= MANY
    requests = [link.c.irecv(room, tag=tag) for tag in range(MANY)]
    again = link.session.stats
    assert again["requests"] == after["requests"]  # the pool is used again
    assert again["requests_used"] >= MANY
    for request in requests:
        assert request.cancel()


def test_unexpected_messages_take_memory_and_buckets(link):
    before = link.session.stats
    link.peer(send_many, MANY, 100)

    def all_here():
        link.session.progress()
        return link.session.stats["unexpected"] - before["unexpected"] >= MANY

    expect_soon(all_here, "that the messages arrive")
    link.c.recv(tag=MANY - 1, timeout=BOUND)
    during = link.session.stats
    assert during["unexpected_bytes"] >= before["unexpected_bytes"] + (MANY - 1) * 100
    assert during["match_buckets"] > before["match_buckets"]
    assert during["match_queues"] > 0
    for tag in range(MANY - 1):
        link.c.recv(tag=tag, timeout=BOUND)
    after = link.session.stats
    assert after["unexpected_bytes"] == before["unexpected_bytes"]
    assert after["match_buckets"] < during["match_buckets"]


def test_rooms_of_receives_without_a_buffer(link):
    before = link.session.stats["rooms_used"]
    requests = [link.c.irecv(tag=1) for _ in range(20)]
    assert link.session.stats["rooms_used"] == before + 20
    for request in requests:
        assert request.cancel()
    assert link.session.stats["rooms_used"] == before
    assert link.session.stats["rooms_kept"] == 16


def test_active_messages_leave_memory_for_the_next(link):
    seen = []
    link.session.on_message(1, lambda source, header, payload: seen.append(len(payload)))
    assert link.session.stats["am_kept_bytes"] == 0
    for count in (1, 2, 3):
        link.peer(send_am, 3000)
        expect_soon(lambda count=count: link.session.progress() * 0 + len(seen) == count)
    assert 0 < link.session.stats["am_kept_bytes"] <= 3 * 4096


def test_blocks_of_the_pool(open_session):
    session = open_session()
    assert session.stats["pool_blocks_used"] == session.stats["pool_segments"] == 0
    arrays = [session.empty(MIB, np.uint8) for _ in range(3)]
    assert session.stats["pool_blocks_used"] == 3
    assert session.stats["pool_segments"] == 1
    assert session.stats["pool_bytes"] >= 3 * MIB
    arrays.clear()
    assert session.stats["pool_blocks_used"] == 0


def test_segments_that_a_view_maps(connect):
    link = connect("shm")
    array, _ = block(link.session, MIB, 1)
    request = link.c.isend(array, lend=True)
    driven(link, take_view)
    assert driven(link, lambda here: here.session.stats["peer_segments"]) == 1
    driven(link, drop_view)
    request.wait(BOUND)


def test_what_the_transports_hold(connect):
    link = connect("shm")
    stats = link.session.stats
    assert stats["connections"] == stats["shm_rings"] == 1
    assert stats["shm_rings_polled"] <= 1
    with link.session.register(bytearray(100)):
        assert link.session.stats["shm_registrations"] == stats["shm_registrations"] + 1
    link.c.close()
    expect_soon(
        lambda: link.session.progress() * 0 + link.session.stats["shm_rings"] == 0,
        "that the ring is freed",
    )


def test_the_page_names_all(link):
    """All names of stats that no message counts."""
    text = PAGE.read_text()
    with link.session.register(bytearray(100)):
        names = set(link.session.stats)
    counted = set(link.c.stats)
    for name in names - counted:
        assert f"`{name}`" in text


def test_an_outstanding_receive_is_small():
    """The object; a static assertion bounds the core's part."""
    assert pscompy.Request.__basicsize__ <= 144


def test_the_collector_visits_a_send_that_goes_on(link):
    """A blocking send that ends by a Timeout becomes a request; its target is no object."""
    with pytest.raises(pscompy.Timeout) as caught:
        link.c.send(bytes(8 << 20), timeout=0.05)
    assert caught.value.request is not None
    gc.collect()
    assert gc.is_tracked(caught.value.request)
    link.peer.kill()
