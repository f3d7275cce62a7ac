"""Objects that cannot be sent or received, forged ones, peers that die, and the end of sessions."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import types

import numpy as np
import pytest
from puppets import BOUND, check_echo, echo_objects

import pscompy
from pscompy.core import lib
from pscompy.parcel import archive
from pscompy.parcel.pickling import Pickle
from tests.waiting import expect_soon

LONG = 1 << 19  # number of doubles: 4 MiB


# ---- errors ----


class Unpicklable:
    def __reduce__(self):
        raise RuntimeError("not me")


def test_what_cannot_be_pickled_is_not_sent(link):
    for obj, error in ((Unpicklable(), RuntimeError), (threading.Lock(), TypeError)):
        with pytest.raises(error):
            link.c.send_obj([np.ones(LONG), obj], timeout=BOUND)
    check_echo(link)


@pytest.mark.parametrize("kind", ["c16", ">f8", "S5", "i4,f8"])
def test_a_memoryview_that_cannot_be_restored_is_not_sent(link, kind):
    view = memoryview(np.zeros(3, kind))
    for obj in (view, [view], memoryview(np.zeros((2, 0)))):
        with pytest.raises(TypeError, match=r"a memoryview of format .* cannot be restored"):
            link.c.send_obj(obj, timeout=BOUND)
    check_echo(link)


def send_what_only_the_peer_knows(here):
    module = sys.modules["only_there"] = types.ModuleType("only_there")
    module.Mine = type("Mine", (), {"__module__": "only_there"})
    here.c.send_obj([module.Mine(), np.ones(1 << 17)])
    here.c.send_obj("next")


def test_a_class_that_the_receiver_lacks(link):
    link.peer.begin(send_what_only_the_peer_knows)
    with pytest.raises(pscompy.ParcelError, match="only_there") as caught:
        link.c.recv_obj(timeout=BOUND)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert link.c.recv_obj(timeout=BOUND) == "next"
    link.peer.result()
    check_echo(link)


OBJECTS, CHUNKS = lib.PSC_CONTEXT_OBJECTS, lib.PSC_CONTEXT_CHUNKS


def raw(c):
    """Connections in the contexts of objects and of chunks, to send any bytes as a head or a
    chunk."""
    return [c._in_context(OBJECTS), c._in_context(CHUNKS)]


def receive_two(here):
    """Returns the name of the first object's error, and the second object."""
    told = None
    try:
        here.c.recv_obj()
    except (pscompy.ProtocolError, pscompy.ParcelError) as error:
        told = type(error).__name__
    return told, here.c.recv_obj()


@pytest.mark.parametrize("data", [b"", b"x", b"PCL\x01" + b"\xff" * 60, b"\x80\x05garbage"])
def test_garbage_is_refused_and_the_connection_goes_on(link, data):
    raw(link.c)[0].isend(data)
    link.c.isend_obj("next")
    error = "ParcelError" if data[:1] == b"\x80" else "ProtocolError"
    assert link.peer(receive_two) == (error, "next")
    check_echo(link)


@pytest.mark.parametrize("nbytes", [0, 39_999, 40_001, 1 << 20])
def test_a_chunk_of_another_length_than_the_head_says(link, nbytes):
    pieces, _ = archive.dump([np.ones(5000)], Pickle(), 4096).pack(ident=77, room=0)
    heads, chunks = raw(link.c)
    heads.isend(pieces)
    chunk = chunks.isend(bytes(nbytes), 77)
    link.peer.begin(lambda here: here.c.recv_obj())
    chunk.wait(BOUND)
    with pytest.raises(pscompy.ProtocolError, match="its table says 40000"):
        link.peer.result()
    check_echo(link)


def send_head_and_first_chunk(here):
    pieces, _ = archive.dump([np.ones(1 << 20)] * 3, Pickle(), 4096).pack(ident=1, room=0)
    heads, chunks = raw(here.c)
    heads.send(pieces)
    chunks.isend(np.ones(1 << 20), 1)


def test_the_peer_dies_between_head_and_chunk(link):
    link.peer(send_head_and_first_chunk)
    request = link.c.irecv_obj()
    expect_soon(lambda: request.test() or request.status is not None)
    link.peer.kill()
    with pytest.raises((pscompy.PeerLost, pscompy.Closed)):
        request.wait(BOUND)


def test_the_receiver_dies_before_it_takes_the_chunk(link):
    request = link.c.isend_obj([np.ones(LONG)])
    link.peer(lambda here: here.c.probe_obj(timeout=BOUND))
    link.peer.kill()
    with pytest.raises((pscompy.PeerLost, pscompy.Closed)):
        request.wait(BOUND)


# ---- names that a pickle may use ----


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_a_malicious_pickle_to_a_session_that_is_restricted(connect, transport, tmp_path):
    link = connect(transport, PARCEL_UNPICKLE="restricted")
    link.peer(lambda here: os.chdir(tmp_path))
    link.c.isend_obj(Evil())
    with pytest.raises(pscompy.ParcelError, match="PSP_PARCEL_ALLOW"):
        link.peer(lambda here: here.c.recv_obj())
    link.c.isend_obj({"field": np.ones(5000)})
    assert link.peer(lambda here: float(here.c.recv_obj()["field"].sum())) == 5000
    assert not list(tmp_path.iterdir())


def send_maliciously(here, folder):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (folder,)

    here.c.isend_obj([1, Evil()])


def test_a_malicious_pickle_from_a_peer(connect, transport, tmp_path):
    link = connect(transport, PARCEL_UNPICKLE="restricted")
    link.peer(send_maliciously, str(tmp_path / "evil"))
    with pytest.raises(pscompy.ParcelError, match="mkdir"):
        link.c.recv_obj(timeout=BOUND)
    assert not list(tmp_path.iterdir())
    check_echo(link)


def test_without_restriction_it_runs(shm, tmp_path):
    """Without restriction a pickle runs code, as the documentation warns; so the tests above
    prove something."""
    shm.peer(lambda here: os.chdir(tmp_path))
    shm.c.isend_obj(Evil())
    shm.peer(lambda here: here.c.recv_obj())
    assert (tmp_path / "evil").is_dir()


# ---- the end ----


def test_closed(link):
    link.c.close()
    with contextlib.suppress(pscompy.Closed):
        link.c.recv_obj(timeout=BOUND)
    with pytest.raises(pscompy.Closed):
        link.c.send_obj(1)


def receive_and_confirm(here):
    total = float(here.c.recv_obj().sum())
    here.c.send_obj("received")
    return total


def test_a_dropped_request_completes(link):
    link.c.isend_obj(np.ones(LONG))
    gc.collect()
    link.peer.begin(receive_and_confirm)
    assert link.c.recv_obj(timeout=BOUND) == "received"
    assert link.peer.result() == LONG


def test_memory_does_not_grow(shm):
    """Neither side's memory grows with the number of objects."""
    fields = [np.ones(1 << power) for power in (2, 10, 14, 17)]
    size = {}
    for rounds in (50, 200, 200):
        shm.peer.begin(echo_objects, rounds)
        for n in range(rounds):
            shm.c.send_obj([n, fields[n % 4]], timeout=BOUND)
            shm.c.recv_obj(timeout=BOUND)
        shm.peer.result()
        size[rounds] = shm.peer.resident()
        last = size.setdefault("first", size[rounds])
    assert size[200] - last < 4 << 20
