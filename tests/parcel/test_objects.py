"""Objects between processes, over each transport."""

from __future__ import annotations

import array
import gc
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from puppets import BOUND, echo_objects

import pscompy
from pscompy import Connection

SMALL = {"a": 1, "b": [2.5, "text"], "c": None}
LONG = 1 << 19  # number of doubles: 4 MiB


def counters(link, *names):
    return [link.c.stats[name] for name in names]


# ---- round trips ----


@pytest.mark.parametrize(
    "obj",
    [
        SMALL,
        None,
        b"",
        b"x" * 300_000,
        bytearray(b"y" * 5000),
        array.array("i", range(2000)),
        [b"z" * 70_000, "text" * 40_000],
        {"deep": [{"deeper": (1, 2)}] * 50},
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_objects_come_back(link, obj):
    link.peer.begin(lambda here: here.c.send_obj(here.c.recv_obj(tag=3), tag=4))
    link.c.send_obj(obj, tag=3, timeout=BOUND)
    made = link.c.recv_obj(tag=4, timeout=BOUND)
    assert type(made) is type(obj)
    assert made == obj
    link.peer.result()


@pytest.mark.parametrize("count", [0, 10, 511, 512, 513, 10_000, 20_000, LONG])
def test_arrays_of_every_length_come_back_writable(link, count):
    link.peer.begin(echo_objects)
    field = np.arange(count, dtype=float)
    link.c.send_obj(field, timeout=BOUND)
    made = link.c.recv_obj(timeout=BOUND)
    assert np.array_equal(made, field)
    assert made.flags.writeable
    assert made.flags.aligned
    made[...] = 7
    link.peer.result()


def test_many_arrays_of_all_lengths_in_one_object(link):
    link.peer.begin(echo_objects)
    fields = [np.full(1 << power, power, np.float32) for power in range(21)]
    fields[5:5] = [np.zeros(0), np.arange(9000)]
    fields[6].flags.writeable = False
    link.c.send_obj(fields, timeout=BOUND)
    made = link.c.recv_obj(timeout=BOUND)
    assert all(np.array_equal(a, b) for a, b in zip(made, fields, strict=True))
    assert [it.flags.writeable for it in made] == [it.flags.writeable for it in fields]
    link.peer.result()


def send_ever_longer(here):
    fields = [np.zeros(n * n * n * 10) for n in range(40)]
    pscompy.wait_all([here.c.isend_obj([n, fields[n]], n % 2) for n in range(40)])


def test_order_is_kept_whatever_their_lengths(link):
    link.peer.begin(send_ever_longer)
    even = [link.c.recv_obj(tag=0, timeout=BOUND)[0] for _ in range(20)]
    odd = [link.c.recv_obj(tag=1, timeout=BOUND)[0] for _ in range(20)]
    assert even == list(range(0, 40, 2))
    assert odd == list(range(1, 40, 2))
    link.peer.result()


def send_objects_and_bytes(here):
    here.c.isend_obj("object", 1)
    here.c.isend(b"bytes", 1)
    here.c.isend_obj("next", 1)


def test_objects_match_only_receives_of_objects(link):
    link.peer(send_objects_and_bytes)
    assert link.c.recv(timeout=BOUND) == b"bytes"
    assert link.c.recv_obj(timeout=BOUND) == "object"
    assert link.c.iprobe() is None
    assert link.c.recv_obj(timeout=BOUND) == "next"
    with pytest.raises(pscompy.Timeout):
        link.c.recv_obj(timeout=0.01)


def test_probe(link):
    link.peer(lambda here: here.c.isend_obj([1, 2], tag=9))
    status = link.c.probe_obj(timeout=BOUND)
    assert (status.source, status.tag) == (link.c, 9)
    assert status.nbytes < 100
    with pytest.raises(pscompy.Timeout):
        link.c.probe_obj(tag=8, timeout=0.01)
    assert link.c.recv_obj(tag=9, timeout=BOUND) == [1, 2]


# ---- value semantics ----


@pytest.mark.parametrize("count", [10, 1000, LONG])
def test_what_is_overwritten_after_sending_changes_nothing(link, count):
    field = np.ones(count)
    requests = [link.c.isend_obj([field, n]) for n in range(3)]
    field[...] = 5
    link.peer.begin(lambda here: [float(here.c.recv_obj()[0].sum()) for _ in range(4)])
    link.c.send_obj([field, 3], timeout=BOUND)
    field[...] = 6
    pscompy.wait_all(requests, BOUND)
    assert link.peer.result() == [count, count, count, 5 * count]


def read_only(array):
    array.flags.writeable = False
    return array


READ_ONLY = {
    "view": lambda field: read_only(field[:]),
    "memoryview": lambda field: memoryview(field).toreadonly(),
    "view of a memoryview": lambda field: np.asarray(memoryview(field).toreadonly()),
}


@pytest.mark.parametrize("view", READ_ONLY)
def test_what_is_overwritten_beside_a_read_only_view_changes_nothing(link, view):
    field = np.ones(LONG)
    request = link.c.isend_obj([READ_ONLY[view](field)])
    field[...] = 5
    link.peer.begin(lambda here: float(np.asarray(here.c.recv_obj()[0]).sum()))
    request.wait(BOUND)
    assert link.peer.result() == LONG


def test_only_what_can_change_is_copied(link):
    objects = link.c._own_objects()
    constant = [memoryview(bytes(8)), read_only(np.ones(8))[2:], np.frombuffer(bytes(8), "u1")]
    assert all(objects._own(chunk) is chunk for chunk in constant)
    changing = [np.ones(8), memoryview(bytearray(8)), read_only(np.frombuffer(bytearray(8), "u1"))]
    assert not any(objects._own(chunk) is chunk for chunk in changing)


def overwrite(here):
    here.c.recv_obj()[:] = 3
    here.c.send_obj("written")


def test_a_received_array_is_the_receivers_own(link):
    field = np.ones(LONG)
    link.peer.begin(overwrite)
    link.c.send_obj(field, timeout=BOUND)
    assert link.c.recv_obj(timeout=BOUND) == "written"
    assert field.sum() == LONG
    link.peer.result()


# ---- memory ----


def stats(here):
    return here.c.stats


def receive(here):
    """Receive an object and keep it; returns the counters after that."""
    here.got = here.c.recv_obj()
    return here.c.stats


def test_a_long_array_is_copied_once(link):
    before = link.peer(stats)
    link.peer.begin(receive)
    link.c.send_obj(np.ones(LONG), timeout=BOUND)
    after = link.peer.result()
    moved = {name: after[name] - before[name] for name in after}
    assert moved["received_messages"] == 2
    assert moved["unexpected_copied"] < 1000
    assert link.c.stats["rndv_rts"] == 1


def drop(here, n=1):
    """Receive objects and drop them; returns the counters after that."""
    for _ in range(n):
        here.c.recv_obj()
    return here.c.stats


def copies(link, field, lend=False):
    """How often the bytes of `field` are copied, on both sides together."""
    before = link.c.stats["copied_bytes"] + link.peer(stats)["copied_bytes"]
    link.peer.begin(drop)
    link.c.send_obj(field, timeout=BOUND, lend=lend)
    there = link.peer.result()["copied_bytes"]
    return (there + link.c.stats["copied_bytes"] - before) / field.nbytes


def test_a_long_object_is_copied_once_by_count(link):
    """The array is copied once; only its head of 100 bytes is copied more often."""
    assert copies(link, np.ones(LONG)) == pytest.approx(1, abs=0.001)
    assert copies(link, link.session.empty(LONG)) == pytest.approx(1, abs=0.001)


def test_a_lent_object_is_not_copied_by_count(shm):
    assert copies(shm, shm.session.empty(LONG), lend=True) == pytest.approx(0, abs=0.001)


def post(here):
    here.request = here.c.irecv(bytearray(1000), 7)
    return here.c.stats


def complete(here):
    here.request.wait()
    return here.c.stats


def test_a_short_message_is_copied_twice_by_count(link):
    before = link.peer(post)["copied_bytes"]
    sent = link.c.stats["copied_bytes"]
    link.c.send(bytes(1000), 7)
    after = link.peer(complete)["copied_bytes"]
    assert (link.c.stats["copied_bytes"] - sent, after - before) == (1000, 1000)


def test_memory_of_the_pool_is_registered_for_no_message(shm):
    """The fabric knows the pool's memory, so only other arrays are registered for their message."""
    shm.peer.begin(drop, 6)
    known = shm.session.empty(1 << 16)
    for _ in range(3):
        shm.c.send_obj({"field": known}, timeout=BOUND)
    assert shm.c.stats["registrations"] == 0
    for _ in range(3):
        shm.c.send_obj({"field": np.ones(1 << 16)}, timeout=BOUND)
    assert shm.c.stats["registrations"] == 3
    assert shm.peer.result()["registrations"] == 0


def test_memory_returns_to_the_pool_with_the_last_reference(shm):
    addresses = set()
    for _ in range(6):
        shm.peer.begin(lambda here: here.c.send_obj({"field": np.ones(1 << 17)}))
        made = shm.c.recv_obj(timeout=BOUND)["field"]
        shm.peer.result()
        part = made[100:]
        addresses.add(made.ctypes.data)
        del made
        assert part.sum() == (1 << 17) - 100
        del part
        gc.collect()
    assert len(addresses) == 1


def test_a_pool_that_is_exhausted_only_costs_speed(connect):
    link = connect("shm", POOL_MAX=0)
    link.peer.begin(lambda here: here.c.send_obj(np.ones(1 << 17)))
    assert link.c.recv_obj(timeout=BOUND).sum() == 1 << 17
    link.peer.result()
    assert link.session.stats["pool_exhausted"] > 0


def view(here):
    """Receive an array and keep it; returns its sum, and True if it can be written."""
    here.got = here.c.recv_obj()["field"]
    return float(here.got.sum()), here.got.flags.writeable


def release_view(here):
    del here.got
    return here.c.stats


def test_lent_arrays_are_not_copied(shm):
    field = shm.session.empty(LONG)
    field[:] = 2
    request = shm.c.isend_obj({"field": field, "more": SMALL}, lend=True)
    assert not field.flags.writeable
    assert shm.peer(view) == (2 * LONG, False)
    assert not request.test()
    assert shm.peer(release_view)["views_mapped"] == 1
    request.wait(BOUND)
    assert field.flags.writeable
    assert shm.c.stats["lent"] == 1


def test_what_cannot_be_lent_is_sent(link):
    field = np.ones(LONG)
    request = link.c.isend_obj([field, np.ones(600)], lend=True)
    link.peer.begin(lambda here: float(sum(field.sum() for field in here.c.recv_obj())))
    request.wait(BOUND)
    assert link.peer.result() == LONG + 600
    assert link.c.stats["lend_copied"] == 2


# ---- short objects, received into reused memory ----


def send_outer_and_inner(here):
    class Outer:
        def __reduce__(self):
            return eval, ("__import__('pscompy').receiver.recv_obj(tag=2)",)

    here.c.send_obj("inner" * 10, tag=2)
    here.c.send_obj(Outer(), tag=1)


def test_an_object_that_receives_while_it_is_made(link, monkeypatch):
    monkeypatch.setattr(pscompy, "receiver", link.c, raising=False)
    link.peer.begin(send_outer_and_inner)
    assert link.c.recv_obj(tag=1) == "inner" * 10
    link.peer.result()


@pytest.mark.parametrize("nbytes", [900, 980, 1000, 1010, 1020, 1024, 1100, 5000])
def test_around_the_length_that_has_room(link, nbytes):
    link.peer.begin(echo_objects, 2)
    for obj in ("y" * nbytes, "z"):
        link.c.send_obj(obj)
        assert link.c.recv_obj() == obj
    link.peer.result()


def send_pickles(here, data):
    """Send two objects whose pickle is `data`."""
    for _ in range(2):
        here.c._own_objects().heads.send(data)


def test_what_is_cut_short_does_not_go_on_with_the_object_before_it(link):
    whole = pickle.dumps(["text"] * 20 + [1, 2, 3], 5)
    link.peer.begin(lambda here: here.c.send_obj(["text"] * 20 + [1, 2, 3]))
    assert link.c.recv_obj()[-1] == 3
    link.peer.result()
    link.peer.begin(send_pickles, whole[:-6])
    for _ in range(2):
        with pytest.raises(pscompy.ParcelError):
            link.c.recv_obj()
    link.peer.result()


@pytest.mark.parametrize("open_parts", [Connection._own_objects, Connection._action_peer])
def test_threads_open_the_same_parts_of_a_connection(link, monkeypatch, open_parts):
    both, make = threading.Barrier(2), Connection._make_objects

    def make_together(*args):
        both.wait(60)
        return make(*args)

    monkeypatch.setattr(Connection, "_make_objects", make_together)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(open_parts, [link.c] * 2)
    assert first is second
