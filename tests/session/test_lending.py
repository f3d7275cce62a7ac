"""Messages sent with lend=True, which a receiver over shm reads where they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pooled import (
    MIB,
    block,
    contents_of_view,
    driven,
    drop_view,
    stat,
    take_and_tell,
    take_view,
    told,
    told_there,
)
from puppets import BOUND

import pscompy


@pytest.mark.parametrize("nbytes", [4096, 100_000, MIB, 5 * MIB + 3])
def test_the_receiver_reads_the_senders_pages(shm, nbytes):
    array, bytes_ = block(shm.session, nbytes, 9)
    request = shm.c.isend(array, 4, lend=True)
    assert shm.peer(take_and_tell, 4) == bytes_
    assert not shm.peer(lambda here: here.view.flags.writeable)
    assert shm.peer(lambda here: (here.view.dtype.str, here.view.shape)) == ("|u1", (nbytes,))
    assert not request.test()
    shm.peer(drop_view)
    request.wait(BOUND)
    assert shm.session.stats["lent"] == 1
    assert stat(shm.peer, "views_mapped") == 1


def test_a_part_of_an_array_may_be_lent(shm):
    array, _ = block(shm.session, 4 * MIB, 1)
    part = array[MIB + 5 : 2 * MIB]
    request = shm.c.isend(part, lend=True)
    shm.peer(take_view)
    assert shm.peer(lambda here: bytes(here.view)) == part.tobytes()
    shm.peer(drop_view)
    request.wait(BOUND)
    assert stat(shm.peer, "views_mapped") == 1


def view_and_drop(here):
    here.c.recv_view()


def test_a_lent_array_is_read_only_until_the_end(shm):
    array, _ = block(shm.session, MIB, 1)
    request = shm.c.isend(array, lend=True)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    shm.peer(view_and_drop)
    request.wait(BOUND)
    assert array.flags.writeable


@pytest.mark.parametrize("dtype", ["u1", "i4,i4"])
def test_a_lent_list_of_one_array_is_that_array(shm, dtype):
    array, bytes_ = block(shm.session, MIB, 1)
    array = array.view(dtype)
    request = shm.c.isend([array], lend=True)
    assert not array.flags.writeable
    assert shm.peer(take_and_tell) == bytes_
    shm.peer(drop_view)
    request.wait(BOUND)
    assert array.flags.writeable
    assert shm.session.stats["lent"] == 1


def test_an_array_lent_to_several_is_read_only_until_the_last_has_read(shm, join):
    other = join(shm)
    array, bytes_ = block(shm.session, MIB, 1)
    first, second = shm.c.isend(array, lend=True), other.c.isend(array, lend=True)
    for link in (shm, other):
        assert link.peer(take_and_tell) == bytes_
    shm.peer(drop_view)
    first.wait(BOUND)
    assert not array.flags.writeable
    other.peer(drop_view)
    second.wait(BOUND)
    assert array.flags.writeable


def test_an_array_that_was_read_only_stays_so(shm):
    array, _ = block(shm.session, MIB, 1)
    array.flags.writeable = False
    request = shm.c.isend(array, lend=True)
    shm.peer(view_and_drop)
    request.wait(BOUND)
    assert not array.flags.writeable


def test_views_cannot_be_written_to(shm):
    request = shm.c.isend(block(shm.session, MIB, 1)[0], lend=True)
    shm.peer(take_view)
    for attempt in (
        lambda here: here.view.setflags(write=True),
        lambda here: setattr(here.view.flags, "writeable", True),
        lambda here: here.view.__setitem__(0, 1),
        lambda here: memoryview(here.view.base).__setitem__(0, 1),
    ):
        with pytest.raises((ValueError, TypeError)):
            shm.peer(attempt)
    shm.peer(drop_view)
    request.wait(BOUND)


def test_recycled_blocks_map_nothing_new(shm):
    for turn in range(20):
        array, bytes_ = block(shm.session, MIB, turn)
        request = shm.c.isend(array, lend=True)
        assert shm.peer(take_and_tell) == bytes_
        shm.peer(drop_view)
        request.wait(BOUND)
        del array, request
    assert stat(shm.peer, "views_mapped") == 20
    assert stat(shm.peer, "segments_mapped") == 1


def test_segments_that_the_owner_has_given_up_are_let_go(connect):
    link = connect("shm", POOL_MAX="200M")
    for size in (70, 100, 150, 190):
        array = link.session.empty(size * MIB, np.uint8)
        array[-1] = size
        request = link.c.isend(array, lend=True)
        assert driven(link, lambda here: int(here.c.recv_view()[-1])) == size
        request.wait(BOUND)
        del array, request
    maps = Path(f"/proc/{link.peer.pid}/maps").read_text().count("pscompy-pool")
    assert maps <= 2, "the last, and what it found of the one before"
    assert stat(link.peer, "segments_mapped") == 4


def keep_views(here):
    here.kept = [here.c.recv_view(timeout=60) for _ in range(40)]


def test_many_views_at_once(connect):
    link = connect("shm", RTS_MAX=8)
    blocks = [block(link.session, 8192, turn) for turn in range(40)]
    requests = [link.c.isend(array, lend=True) for array, _ in blocks]
    driven(link, keep_views)
    assert driven(link, lambda here: [told(view) for view in here.kept]) == [
        bytes_ for _, bytes_ in blocks
    ]
    driven(link, lambda here: here.kept.clear())
    pscompy.wait_all(requests, BOUND)


def test_the_sender_may_go_on_with_others_while_it_lends(link):
    """A message that is being read does not hold later messages back."""
    array, _ = block(link.session, MIB, 1)
    request = link.c.isend(array, lend=True)
    driven(link, take_view)
    link.peer.begin(lambda here: here.c.recv(timeout=60))
    link.c.send(bytes(3 * MIB), timeout=BOUND)
    assert len(link.peer.result()) == 3 * MIB
    driven(link, drop_view)
    request.wait(BOUND)


@pytest.mark.parametrize("make", ["bytes", "array", "list", "tiny"])
def test_what_cannot_be_lent_is_sent(link, make):
    data = {
        "bytes": b"x" * 100_000,
        "array": np.full(100_000, 120, np.uint8),
        "list": [b"x" * 50_000] * 2,
        "tiny": link.session.empty(100, np.uint8),
    }[make]
    if make == "tiny":
        data[...] = 120
    request = link.c.isend(data, lend=True)
    view = driven(link, contents_of_view)
    request.wait(BOUND)
    assert view == (b"x" * len(view[0]), False)
    assert link.session.stats["lend_copied"] == 1
    assert stat(link.peer, "views_mapped") == 0


@pytest.mark.parametrize("way", ["recv_array", "recv_obj"])
def test_a_received_array_is_copied_when_it_is_lent(link, way):
    """Its memory is private, and a peer cannot map it."""
    send, receive = {
        "recv_array": (lambda c, data: c.isend(data), lambda c: c.recv_array("u1", MIB)),
        "recv_obj": (lambda c, data: c.isend_obj(data), lambda c: c.recv_obj()),
    }[way]
    link.peer.begin(lambda here, send: send(here.c, np.full(1 << 20, 7, "u1")).wait(60), send)
    array = receive(link.c)
    link.peer.result()
    request = link.c.isend(array, lend=True)
    assert driven(link, contents_of_view) == (b"\7" * MIB, False)
    request.wait(BOUND)
    assert array.flags.writeable
    assert link.session.stats["lend_copied"] == 1
    assert stat(link.peer, "views_mapped") == 0


def test_the_explanation_tells_what_becomes_of_what_is_lent(link, transport):
    report = link.c.explain()
    assert report.as_dict()["lends"] == (transport == "shm")
    assert ("read where it is" if transport == "shm" else "lent: copied") in str(report)


def test_memory_of_another_session_is_sent(shm, open_session):
    array, bytes_ = block(open_session(), MIB, 2)
    request = shm.c.isend(array, lend=True)
    assert shm.peer(take_and_tell) == bytes_
    request.wait(BOUND)
    assert shm.session.stats["lend_copied"] == 1


def take_message(here):
    here.view = here.c.recv(timeout=60)


def test_a_lent_message_can_be_received_into_a_buffer(link):
    array, bytes_ = block(link.session, MIB, 6)
    request = link.c.isend(array, lend=True)
    driven(link, take_message)
    request.wait(BOUND)
    assert driven(link, told_there) == bytes_


def take_into_buffer(here):
    here.view = bytearray(8192)
    return here.c.recv(here.view, timeout=60)


def test_a_lent_message_truncates_like_any_other(link):
    array, bytes_ = block(link.session, MIB, 6)
    request = link.c.isend(array, lend=True)
    with pytest.raises(pscompy.Truncated):
        driven(link, take_into_buffer)
    request.wait(BOUND)
    assert driven(link, told_there) == bytes_[:2]


def take_probed(here):
    here.view = here.c.mprobe(timeout=60).recv()


def test_a_lent_message_that_was_matched_by_a_probe(link):
    array, bytes_ = block(link.session, MIB, 6)
    request = link.c.isend(array, lend=True)
    driven(link, take_probed)
    request.wait(BOUND)
    assert driven(link, told_there) == bytes_


def test_lent_without_cross_memory_attach(connect):
    link = connect("shm", SHM_CMA="0")
    for receive in (take_view, take_message):
        array, bytes_ = block(link.session, MIB, 6)
        request = link.c.isend(array, lend=True)
        driven(link, receive)
        assert driven(link, told_there) == bytes_
        driven(link, drop_view)
        request.wait(BOUND)
    assert stat(link.peer, "views_mapped") == 1
