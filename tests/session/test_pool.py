"""Memory of the pool, messages sent with lend=True, and views of messages."""

from __future__ import annotations

import gc
import os
import select
import threading

import numpy as np
import pytest
from puppets import BOUND

import pscompy
from tests.waiting import asleep, expect_soon

MIB = 1 << 20
KEPT = """
import numpy as np
kept = []
"""
# One byte of each page; differs for other seeds, exchanged pages and overwritten pages.
TOLD = "[int(view[at]) for at in range(0, len(view), 4096)]"


def pattern(array, seed):
    """Fill `array` so that the first byte of each page identifies the page and `seed`; returns
    these bytes."""
    array[...] = seed
    array[::4096] = (np.arange(len(array[::4096])) * 7 + seed) % 251
    return [int(byte) for byte in array[::4096]]


def told(view):
    return [int(byte) for byte in view[::4096]]


def block(session, nbytes, seed):
    array = session.empty(nbytes, np.uint8)
    return array, pattern(array, seed)


@pytest.fixture
def link(connect, transport):
    made = connect(transport)
    made.peer(KEPT)
    return made


@pytest.fixture
def shm(connect):
    made = connect("shm")
    made.peer(KEPT)
    return made


def stat(peer, name):
    return peer("session.stats[name]", name=name)


def driven(link, source, **names):
    """The puppet's answer to `source`; this side makes progress until it arrives."""
    link.peer.begin(source, **names)
    while not select.select([link.peer.process.stdout], [], [], 0.001)[0]:
        link.session.progress()
    return link.peer.result()


# ---- the pool's memory ----


@pytest.mark.parametrize("shape", [0, 1, 7, (3, 5), (), [2, 2, 2], np.int64(4)])
@pytest.mark.parametrize("dtype", [np.uint8, "f8", complex, np.dtype("i4,f4")])
def test_empty_is_an_array_like_numpys(open_session, shape, dtype):
    array, like = open_session().empty(shape, dtype), np.empty(shape, dtype)
    assert (array.shape, array.dtype) == (like.shape, like.dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.flags.aligned
    array[...] = np.zeros(shape, dtype)
    assert (array == np.zeros(shape, dtype)).all()


def test_empty_holds_numbers_if_nothing_is_said(open_session):
    assert open_session().empty(3).dtype == np.float64


@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [
        (3, object, TypeError),
        (3, [("a", "i4"), ("b", object)], TypeError),
        (3, "S", TypeError),
        (-1, "u1", ValueError),
        ((1 << 40, 1 << 40), "u1", ValueError),
        ("three", "u1", TypeError),
    ],
)
def test_what_cannot_be_an_array_of_the_pool(open_session, shape, dtype, error):
    with pytest.raises(error):
        open_session().empty(shape, dtype)


def test_allocate_gives_writable_bytes(open_session):
    memory = open_session().allocate(10_000)
    assert (memory.nbytes, memory.format, memory.readonly) == (10_000, "B", False)
    memory[:] = bytes(range(250)) * 40
    assert bytes(memory[249:252]) == b"\xf9\x00\x01"
    with pytest.raises(ValueError, match="the size"):
        open_session().allocate(-1)


def test_a_block_is_used_again_when_nothing_refers_to_it(open_session):
    session = open_session()
    array = session.empty(MIB, np.uint8)
    where = array.ctypes.data
    part = array[10:20]
    del array
    assert session.empty(MIB, np.uint8).ctypes.data != where, "a part of it was alive"
    del part
    assert session.empty(MIB, np.uint8).ctypes.data == where


def test_blocks_of_all_sizes_do_not_overlap(open_session):
    session = open_session(POOL_MAX="256M")
    rng, alive = np.random.default_rng(7), {}
    for turn in range(600):
        if alive and rng.random() < 0.45:
            number, array = alive.popitem()
            assert (array == number % 251).all()
        else:
            alive[turn] = session.empty(int(2 ** rng.uniform(0, 21)), np.uint8)
            alive[turn][...] = turn % 251
    for number, array in alive.items():
        assert (array == number % 251).all()
    assert session.stats["pool_exhausted"] == 0


def test_split_blocks_are_joined_for_a_long_one(open_session):
    session = open_session(POOL_MAX=(16 << 20) + 4096)
    small = [session.empty(MIB, np.uint8) for _ in range(16)]
    assert session.stats["pool_exhausted"] == 0
    small.clear()
    long = session.empty(16 * MIB, np.uint8)
    assert session.stats["pool_exhausted"] == 0
    long[...] = 1


def test_one_long_array_makes_room_for_another(open_session):
    session = open_session(POOL_MAX="200M")
    for size in (70, 100, 150, 190, 80):
        array = session.empty(size * MIB, np.uint8)
        array[::MIB] = 1
        del array
    assert session.stats["pool_exhausted"] == 0


def test_an_exhausted_pool_gives_ordinary_memory_and_counts(open_session):
    session = open_session(POOL_MAX="8M")
    arrays = [session.empty(MIB, np.uint8) for _ in range(12)]
    for number, array in enumerate(arrays):
        array[...] = number
    assert session.stats["pool_exhausted"] >= 4
    assert all((array == number).all() for number, array in enumerate(arrays))


def test_a_pool_of_nothing(open_session):
    session = open_session(POOL_MAX=0)
    assert bytes(session.allocate(3)[:0]) == b""
    assert session.stats["pool_exhausted"] == 1


def test_memory_outlives_its_session(open_session):
    session = open_session()
    array, bytes_ = block(session, MIB, 3)
    session.close()
    assert told(array) == bytes_
    array[0] = 77
    assert array[0] == 77
    with pytest.raises(pscompy.Closed):
        session.empty(1)


def test_descriptors_go_with_the_session_and_the_memory(open_session):
    gc.collect()  # free the arrays that other tests have left
    before = set(os.listdir("/proc/self/fd"))
    session = open_session()
    array = session.empty(MIB, np.uint8)
    session.close()
    assert len(set(os.listdir("/proc/self/fd")) - before) == 1, "the segment's"
    del array
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_forked_child_touches_nothing(open_session):
    session = open_session()
    array = session.empty(MIB, np.uint8)
    array[0] = 5
    pid = os.fork()
    if pid == 0:
        good = array[0] == 5
        del array
        gc.collect()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert array[0] == 5
    where = array.ctypes.data
    del array
    assert session.empty(MIB, np.uint8).ctypes.data == where, "the child gave it back"


# ---- lending ----


@pytest.mark.parametrize("nbytes", [4096, 100_000, MIB, 5 * MIB + 3])
def test_the_receiver_reads_the_senders_pages(shm, nbytes):
    array, bytes_ = block(shm.session, nbytes, 9)
    request = shm.c.isend(array, 4, lend=True)
    assert shm.peer(f"view = c.recv_view(4); {TOLD}") == bytes_
    assert shm.peer("view.flags.writeable, view.dtype.str, view.shape") == (
        False,
        "|u1",
        (nbytes,),
    )
    assert not request.test()
    shm.peer("del view")
    request.wait(BOUND)
    assert shm.session.stats["lent"] == 1
    assert stat(shm.peer, "views_mapped") == 1


def test_a_part_of_an_array_may_be_lent(shm):
    array, _ = block(shm.session, 4 * MIB, 1)
    part = array[MIB + 5 : 2 * MIB]
    request = shm.c.isend(part, lend=True)
    shm.peer("view = c.recv_view()")
    assert shm.peer("bytes(view)") == part.tobytes()
    shm.peer("del view")
    request.wait(BOUND)
    assert stat(shm.peer, "views_mapped") == 1


def test_a_lent_array_is_read_only_until_the_end(shm):
    array, _ = block(shm.session, MIB, 1)
    request = shm.c.isend(array, lend=True)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    shm.peer("c.recv_view(); None")
    request.wait(BOUND)
    assert array.flags.writeable


def test_an_array_lent_to_several_is_read_only_until_the_last_has_read(shm, join):
    other = join(shm)
    other.peer(KEPT)
    array, bytes_ = block(shm.session, MIB, 1)
    first, second = shm.c.isend(array, lend=True), other.c.isend(array, lend=True)
    for link in (shm, other):
        assert link.peer(f"view = c.recv_view(); {TOLD}") == bytes_
    shm.peer("del view")
    first.wait(BOUND)
    assert not array.flags.writeable
    other.peer("del view")
    second.wait(BOUND)
    assert array.flags.writeable


def test_an_array_that_was_read_only_stays_so(shm):
    array, _ = block(shm.session, MIB, 1)
    array.flags.writeable = False
    request = shm.c.isend(array, lend=True)
    shm.peer("c.recv_view(); None")
    request.wait(BOUND)
    assert not array.flags.writeable


def test_views_cannot_be_written_to(shm):
    request = shm.c.isend(block(shm.session, MIB, 1)[0], lend=True)
    shm.peer("view = c.recv_view()")
    for attempt in ("view.flags.writeable = True", "view[0] = 1", "memoryview(view.base)[0] = 1"):
        with pytest.raises((ValueError, TypeError)):
            shm.peer(attempt)
    shm.peer("del view")
    request.wait(BOUND)


def test_recycled_blocks_map_nothing_new(shm):
    for turn in range(20):
        array, bytes_ = block(shm.session, MIB, turn)
        request = shm.c.isend(array, lend=True)
        assert shm.peer(f"view = c.recv_view(); {TOLD}") == bytes_
        shm.peer("del view")
        request.wait(BOUND)
        del array, request
    assert stat(shm.peer, "views_mapped") == 20
    assert stat(shm.peer, "segments_mapped") == 1


def test_segments_that_the_owner_has_given_up_are_let_go(connect):
    link = connect("shm", POOL_MAX="200M")
    link.peer(KEPT)
    for size in (70, 100, 150, 190):
        array = link.session.empty(size * MIB, np.uint8)
        array[-1] = size
        request = link.c.isend(array, lend=True)
        assert driven(link, "int(c.recv_view()[-1])") == size
        request.wait(BOUND)
        del array, request
    maps = driven(link, "sum('pscompy-pool' in line for line in open('/proc/self/maps'))")
    assert maps <= 2, "the last, and what it found of the one before"
    assert stat(link.peer, "segments_mapped") == 4


def test_many_views_at_once(connect):
    link = connect("shm", RTS_MAX=8)
    link.peer(KEPT)
    blocks = [block(link.session, 8192, turn) for turn in range(40)]
    requests = [link.c.isend(array, lend=True) for array, _ in blocks]
    driven(link, "for _ in range(40): kept.append(c.recv_view(timeout=60))")
    assert driven(link, "[[int(b) for b in view[::4096]] for view in kept]") == [
        bytes_ for _, bytes_ in blocks
    ]
    driven(link, "kept.clear()")
    pscompy.wait_all(requests, BOUND)


def test_the_sender_may_go_on_with_others_while_it_lends(link):
    """A message that is being read does not hold later messages back."""
    array, _ = block(link.session, MIB, 1)
    request = link.c.isend(array, lend=True)
    driven(link, "view = c.recv_view(timeout=60)")
    link.peer.begin("c.recv(timeout=60)")
    link.c.send(bytes(3 * MIB), timeout=BOUND)
    assert len(link.peer.result()) == 3 * MIB
    driven(link, "del view")
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
    view = driven(link, "view = c.recv_view(timeout=60); bytes(view), view.flags.writeable")
    request.wait(BOUND)
    assert view == (b"x" * len(view[0]), False)
    assert link.session.stats["lend_copied"] == 1
    assert stat(link.peer, "views_mapped") == 0


def test_the_explanation_tells_what_becomes_of_what_is_lent(link, transport):
    report = link.c.explain()
    assert report.as_dict()["lends"] == (transport == "shm")
    assert ("read where it is" if transport == "shm" else "lent: copied") in str(report)


def test_memory_of_another_session_is_sent(shm, open_session):
    array, bytes_ = block(open_session(), MIB, 2)
    request = shm.c.isend(array, lend=True)
    assert shm.peer(f"view = c.recv_view(); {TOLD}") == bytes_
    request.wait(BOUND)
    assert shm.session.stats["lend_copied"] == 1


def test_a_lent_message_can_be_received_into_a_buffer(link):
    array, bytes_ = block(link.session, MIB, 6)
    request = link.c.isend(array, lend=True)
    driven(link, "view = c.recv(timeout=60)")
    request.wait(BOUND)
    assert driven(link, TOLD) == bytes_


def test_a_lent_message_truncates_like_any_other(link):
    array, bytes_ = block(link.session, MIB, 6)
    request = link.c.isend(array, lend=True)
    with pytest.raises(pscompy.Truncated):
        driven(link, "view = bytearray(8192); c.recv(view, timeout=60)")
    request.wait(BOUND)
    assert driven(link, TOLD) == bytes_[:2]


def test_a_lent_message_that_was_matched_by_a_probe(link):
    array, bytes_ = block(link.session, MIB, 6)
    request = link.c.isend(array, lend=True)
    driven(link, "view = c.mprobe(timeout=60).recv()")
    request.wait(BOUND)
    assert driven(link, TOLD) == bytes_


def test_lent_without_cross_memory_attach(connect):
    link = connect("shm", SHM_CMA="0")
    link.peer(KEPT)
    for receive in ("c.recv_view(timeout=60)", "c.recv(timeout=60)"):
        array, bytes_ = block(link.session, MIB, 6)
        request = link.c.isend(array, lend=True)
        assert driven(link, f"view = {receive}; {TOLD}") == bytes_
        driven(link, "del view")
        request.wait(BOUND)
    assert stat(link.peer, "views_mapped") == 1


# ---- views of any message ----


@pytest.mark.parametrize("nbytes", [0, 1, 1000, 100_000, 3 * MIB])
@pytest.mark.parametrize("first", ["receive", "send"])
def test_recv_view_of_any_message(link, nbytes, first):
    data = os.urandom(nbytes)
    if first == "receive":
        link.peer.begin("view = c.recv_view(5, 30); bytes(view), view.flags.writeable")
    request = link.c.isend(data, 5)
    if first == "send":
        link.peer.begin("view = c.recv_view(5, 30); bytes(view), view.flags.writeable")
    request.wait(BOUND)
    assert link.peer.result() == (data, False)


def test_copies_are_of_the_pool_too(link):
    for _ in range(3):
        request = link.c.isend(bytes(2 * MIB))
        driven(link, "view = c.recv_view(timeout=60); where = view.ctypes.data; del view")
        request.wait(BOUND)
        kept = driven(link, "kept.append(where); kept")
    assert len(set(kept)) == 1
    assert driven(link, "session.empty(2 << 20, np.uint8).ctypes.data") == kept[0]


def test_recv_view_without_room_in_the_pool(connect, transport):
    link = connect(transport, POOL_MAX=0)
    data = os.urandom(2 * MIB)
    request = link.c.isend(data)
    assert driven(link, "bytes(c.recv_view(timeout=60))") == data
    request.wait(BOUND)
    assert stat(link.peer, "pool_exhausted") == 1


def test_recv_view_times_out_and_takes_nothing(link):
    with pytest.raises(pscompy.Timeout):
        driven(link, "c.recv_view(timeout=0.05)")
    request = link.c.isend(b"later")
    assert driven(link, "bytes(c.recv_view(timeout=60))") == b"later"
    request.wait(BOUND)


def test_recv_view_matches_tags(link):
    for tag in (1, 2, 3):
        link.c.send(bytes([tag]), tag)
    assert driven(link, "[c.recv_view(tag, 30)[0] for tag in (3, 1, 2)]") == [3, 1, 2]


# ---- ends of processes and connections ----


def test_kill_of_a_receiver_frees_what_it_had(shm):
    array, _ = block(shm.session, MIB, 1)
    where = array.ctypes.data
    request = shm.c.isend(array, lend=True)
    shm.peer("view = c.recv_view()")
    shm.peer.kill()
    request.wait(BOUND)
    assert array.flags.writeable
    del array, request
    assert shm.session.empty(MIB, np.uint8).ctypes.data == where


def test_kill_of_a_receiver_that_has_not_asked_for_it(shm):
    request = shm.c.isend(block(shm.session, MIB, 1)[0], lend=True)
    shm.peer("session.progress(); None")
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


def test_views_survive_kill_of_the_sender(shm):
    source = "array = session.empty(1 << 20, np.uint8); array[...] = 5; array[::4096] = 9"
    shm.peer(f"{source}; request = c.isend(array, lend=True); None")
    view = shm.c.recv_view(timeout=BOUND)
    shm.peer.kill()
    expect_soon(lambda: shm.c.state is pscompy.ConnectionState.FAILED)
    assert set(told(view)) == {9}
    assert view[1] == 5
    shm.session.close()
    assert set(told(view)) == {9}
    assert view[1] == 5


@pytest.mark.parametrize("who", ["connection", "session"])
def test_views_survive_the_sender_that_closes_and_goes_on_writing(shm, who):
    source = "array = session.empty(1 << 20, np.uint8); array[...] = 5; array[::4096] = 9"
    shm.peer(f"{source}; request = c.isend(array, lend=True); None")
    view = shm.c.recv_view(timeout=BOUND)
    shm.peer("c.close()" if who == "connection" else "session.close()")
    shm.peer("request.wait(30)")
    shm.peer("array[...] = 200")
    assert set(told(view)) == {9}
    assert view[1] == 5
    assert shm.session.stats["views_kept"] == 1
    shm.session.close()
    assert set(told(view)) == {9}
    assert view[1] == 5


@pytest.mark.parametrize("who", ["connection", "session"])
def test_views_survive_their_own_sides_end(shm, who):
    array, bytes_ = block(shm.session, MIB, 1)
    request = shm.c.isend(array, lend=True)
    shm.peer("view = c.recv_view()")
    shm.peer("c.close()" if who == "connection" else "session.close()")
    request.wait(BOUND)
    array[...] = 200
    assert shm.peer(TOLD) == bytes_
    shm.peer("del view")


def test_views_survive_the_sessions_that_are_dropped_at_the_end(shm):
    """The interpreter exits with a view alive and does not crash or hang."""
    request = shm.c.isend(block(shm.session, MIB, 1)[0], lend=True)
    shm.peer("view = c.recv_view()")
    assert shm.peer.finish() == 0
    request.wait(BOUND)


def test_a_lent_message_that_nobody_takes_keeps_the_close_waiting(shm):
    """Close waits for a lent message like for any message that has not been received; then the
    loan ends."""
    array, bytes_ = block(shm.session, MIB, 1)
    request = shm.c.isend(array, lend=True)
    shm.c.close()
    assert driven(shm, f"view = c.recv_view(timeout=60); {TOLD}") == bytes_
    request.wait(BOUND)
    expect_soon(lambda: shm.c.state is pscompy.ConnectionState.CLOSED)
    array[...] = 200
    assert shm.peer(TOLD) == bytes_


def test_views_die_in_any_thread(shm):
    arrays = [block(shm.session, MIB, turn)[0] for turn in range(50)]
    requests = [shm.c.isend(array, lend=True) for array in arrays]
    shm.peer(
        """
        views = [c.recv_view(timeout=60) for _ in range(50)]
        def drop():
            while views:
                views.pop()
        threads = [threading.Thread(target=drop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    )
    assert pscompy.wait_all(requests, BOUND) == [None] * 50


def test_a_view_that_dies_while_the_peer_sleeps_wakes_it(shm):
    request = shm.c.isend(block(shm.session, MIB, 1)[0], lend=True)
    shm.peer("view = c.recv_view()")
    waiter = threading.Thread(target=request.wait, args=(BOUND,))
    waiter.start()
    expect_soon(lambda: asleep(waiter.native_id))
    shm.peer("del view")
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
