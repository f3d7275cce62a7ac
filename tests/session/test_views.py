"""Views of messages: of any message, and after the ends of processes and connections."""

from __future__ import annotations

import os
import threading

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
from tests.waiting import asleep, expect_soon

# ---- views of any message ----


@pytest.mark.parametrize("nbytes", [0, 1, 1000, 100_000, 3 * MIB])
@pytest.mark.parametrize("first", ["receive", "send"])
def test_recv_view_of_any_message(link, nbytes, first):
    data = os.urandom(nbytes)
    if first == "receive":
        link.peer.begin(contents_of_view, 5)
    request = link.c.isend(data, 5)
    if first == "send":
        link.peer.begin(contents_of_view, 5)
    request.wait(BOUND)
    assert link.peer.result() == (data, False)


def take_and_locate(here):
    """The address of the next message, whose view is dropped."""
    return here.c.recv_view(timeout=60).ctypes.data


def test_copies_are_of_the_pool_too(link):
    kept = []
    for _ in range(3):
        request = link.c.isend(bytes(2 * MIB))
        kept.append(driven(link, take_and_locate))
        request.wait(BOUND)
    assert len(set(kept)) == 1
    request = link.c.isend(bytes(2 * MIB))
    array = driven(link, lambda here: here.c.recv_array("u1", 2 << 20, timeout=60).ctypes.data)
    request.wait(BOUND)
    assert array == kept[0]


def test_recv_view_without_room_in_the_pool(connect, transport):
    link = connect(transport, POOL_MAX=0)
    data = os.urandom(2 * MIB)
    request = link.c.isend(data)
    assert driven(link, lambda here: bytes(here.c.recv_view(timeout=60))) == data
    request.wait(BOUND)
    assert stat(link.peer, "pool_exhausted") == 1


def test_recv_view_times_out_and_takes_nothing(link):
    with pytest.raises(pscompy.Timeout):
        driven(link, lambda here: here.c.recv_view(timeout=0.05))
    request = link.c.isend(b"later")
    assert driven(link, lambda here: bytes(here.c.recv_view(timeout=60))) == b"later"
    request.wait(BOUND)


def test_recv_view_matches_tags(link):
    for tag in (1, 2, 3):
        link.c.send(bytes([tag]), tag)
    got = driven(link, lambda here: [int(here.c.recv_view(tag, 30)[0]) for tag in (3, 1, 2)])
    assert got == [3, 1, 2]


# ---- ends of processes and connections ----


def test_kill_of_a_receiver_frees_what_it_had(shm):
    array, _ = block(shm.session, MIB, 1)
    where = array.ctypes.data
    request = shm.c.isend(array, lend=True)
    shm.peer(take_view)
    shm.peer.kill()
    request.wait(BOUND)
    assert array.flags.writeable
    del array, request
    assert shm.session.empty(MIB, np.uint8).ctypes.data == where


def progress(here):
    here.session.progress()


def test_kill_of_a_receiver_that_has_not_asked_for_it(shm):
    request = shm.c.isend(block(shm.session, MIB, 1)[0], lend=True)
    shm.peer(progress)
    shm.peer.kill()
    assert request.wait(BOUND) is None


def test_lent_to_nobody_is_lost(connect):
    """A send with lend=True that could not be announced fails."""
    link = connect("shm", RTS_MAX=1)
    array, _ = block(link.session, MIB, 1)
    requests = [link.c.isend(array, lend=True) for _ in range(2)]
    link.peer.kill()
    requests[0].wait(BOUND)
    with pytest.raises(pscompy.PeerLost):
        requests[1].wait(BOUND)


def lend(here):
    here.array = here.session.empty(1 << 20, np.uint8)
    here.array[...] = 5
    here.array[::4096] = 9
    here.request = here.c.isend(here.array, lend=True)


def test_views_survive_kill_of_the_sender(shm):
    shm.peer(lend)
    view = shm.c.recv_view(timeout=BOUND)
    shm.peer.kill()
    expect_soon(lambda: shm.c.state is pscompy.ConnectionState.FAILED)
    assert set(told(view)) == {9}
    assert view[1] == 5
    shm.session.close()
    assert set(told(view)) == {9}
    assert view[1] == 5


CLOSES = {
    "connection": lambda here: here.c.close(),
    "session": lambda here: here.session.close(),
}


def overwrite(here):
    here.array[...] = 200


@pytest.mark.parametrize("who", CLOSES)
def test_views_survive_the_sender_that_closes_and_goes_on_writing(shm, who):
    shm.peer(lend)
    view = shm.c.recv_view(timeout=BOUND)
    shm.peer(CLOSES[who])
    shm.peer(lambda here: here.request.wait(30))
    shm.peer(overwrite)
    assert set(told(view)) == {9}
    assert view[1] == 5
    assert shm.session.stats["views_kept"] == 1
    shm.session.close()
    assert set(told(view)) == {9}
    assert view[1] == 5


@pytest.mark.parametrize("who", CLOSES)
def test_views_survive_their_own_sides_end(shm, who):
    array, bytes_ = block(shm.session, MIB, 1)
    request = shm.c.isend(array, lend=True)
    shm.peer(take_view)
    shm.peer(CLOSES[who])
    request.wait(BOUND)
    array[...] = 200
    assert shm.peer(told_there) == bytes_
    shm.peer(drop_view)


def test_views_survive_the_sessions_that_are_dropped_at_the_end(shm):
    """The interpreter exits with a view alive and does not crash or hang."""
    request = shm.c.isend(block(shm.session, MIB, 1)[0], lend=True)
    shm.peer(take_view)
    assert shm.peer.finish() == 0
    request.wait(BOUND)


def test_a_lent_message_that_nobody_takes_keeps_the_close_waiting(shm):
    """Close waits for a lent message like for any message that has not been received; then the
    loan ends."""
    array, bytes_ = block(shm.session, MIB, 1)
    request = shm.c.isend(array, lend=True)
    shm.c.close()
    assert driven(shm, take_and_tell) == bytes_
    request.wait(BOUND)
    expect_soon(lambda: shm.c.state is pscompy.ConnectionState.CLOSED)
    array[...] = 200
    assert shm.peer(told_there) == bytes_


def drop_in_threads(here):
    views = [here.c.recv_view(timeout=60) for _ in range(50)]

    def drop():
        while views:
            views.pop()

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_views_die_in_any_thread(shm):
    arrays = [block(shm.session, MIB, turn)[0] for turn in range(50)]
    requests = [shm.c.isend(array, lend=True) for array in arrays]
    shm.peer(drop_in_threads)
    assert pscompy.wait_all(requests, BOUND) == [None] * 50


def test_a_view_that_dies_while_the_peer_sleeps_wakes_it(shm):
    request = shm.c.isend(block(shm.session, MIB, 1)[0], lend=True)
    shm.peer(take_view)
    waiter = threading.Thread(target=request.wait, args=(BOUND,))
    waiter.start()
    expect_soon(lambda: asleep(waiter.native_id))
    shm.peer(drop_view)
    waiter.join(BOUND)
    assert not waiter.is_alive()


def test_a_loop_within_one_session(open_session):
    """A session that lends to itself uses the loop transport, which copies."""
    session = open_session()
    sock = session.listen("127.0.0.1")
    c = session.connect(sock.address)
    array, bytes_ = block(session, MIB, 1)
    request = c.isend(array, lend=True)
    assert told(sock.accept(timeout=BOUND).recv_view(timeout=BOUND)) == bytes_
    request.wait(BOUND)
