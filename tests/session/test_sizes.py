"""Messages of every length and shape, and objects that cannot serve as buffers."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import random
from pathlib import Path

import numpy as np
import pytest
from puppets import BOUND, check_echo, echo

import pscompy
from tests.names import nameless

GIB = 1 << 30
HUGE = 4 * GIB + 3
EDGES = sorted(
    {
        n + d
        for n in (0, 1, 8, 64, 2048, 4000, 4096, 8192, 16384, 65536, 1 << 17, 1 << 20, 3 << 20)
        for d in (-1, 0, 1)
        if n + d >= 0
    }
)


def thresholds(c):
    """The lengths around which this connection changes its protocol."""
    report = c.explain().as_dict()
    edges = [report["eager_max"], report["zcopy_min"], report["fragment"]]
    return [n + d for n in edges if n and n < 8 << 20 for d in (-1, 0, 1)]


def test_every_length(link):
    """Messages are echoed unchanged for lengths around every threshold."""
    rng = random.Random(5)
    lengths = sorted({*EDGES, *thresholds(link.c)})
    link.peer.begin(echo, n=len(lengths))
    for nbytes in lengths:
        data = rng.randbytes(nbytes)
        link.c.send(data)
        assert link.c.recv(timeout=BOUND) == data
    link.peer.result()


def send_and_echo(here, data):
    here.c.send(data)
    m = here.c.recv()
    here.c.send(m)


@pytest.mark.parametrize("scheme", ["put", "get", "am"])
def test_every_scheme(connect, transport, scheme):
    """The receiver posts its receive before or after the announcement arrives."""
    link = connect(transport, RNDV_SCHEME=scheme)
    rng = random.Random(6)
    lengths = [300_000, (1 << 20) + 1, 9_000_001]
    for nbytes in lengths:
        data = rng.randbytes(nbytes)
        buffer = bytearray(nbytes)
        request = link.c.irecv(buffer)
        link.peer.begin(send_and_echo, data=data)
        assert request.wait(BOUND).nbytes == nbytes
        assert buffer == data
        link.c.send(data)
        assert link.c.recv(timeout=BOUND) == data
        link.peer.result()


def send_huge(here, size):
    data = np.zeros(size, dtype=np.uint8)
    data[:3], data[-3:] = (1, 2, 3), (4, 5, 6)
    data[1 << 31] = 7
    here.c.send(data)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_more_than_four_gib(connect, transport, record_property):
    """A message of 4 GiB + 3 B arrives in a buffer of the receiver; each side has one such
    buffer."""
    needed = 2 * HUGE + GIB
    available = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable")
    )
    if available < needed:
        pytest.skip(f"{available >> 30} GiB of memory are available, {needed >> 30} are needed")
    link = connect(transport)
    link.peer.begin(send_huge, HUGE)
    buffer = np.ones(HUGE, dtype=np.uint8)
    status = link.c.recv(buffer, timeout=500)
    link.peer.result(timeout=60)
    assert status.nbytes == HUGE
    places = [0, 1, 2, 1 << 31, HUGE - 3, HUGE - 2, HUGE - 1]
    assert list(buffer[places]) == [1, 2, 3, 7, 4, 5, 6]
    buffer[places] = 0
    assert not buffer[:-3].view(np.uint64).any()  # a word at a time
    del buffer
    check_echo(link)


def send_nothing(here):
    here.c.send(b"", tag=3)
    here.c.send([], tag=4)
    here.c.send([b"", b""], tag=5)
    return here.c.recv()


def test_nothing(link):
    """Messages without bytes are delivered like others."""
    link.peer.begin(send_nothing)
    assert link.c.recv(tag=3, timeout=BOUND) == b""
    assert link.c.recv(bytearray(), tag=4, timeout=BOUND).nbytes == 0
    assert link.c.recv(bytearray(10), tag=5, timeout=BOUND) == (link.c, 5, 0)
    link.c.send(b"")
    assert link.peer.result() == b""


def send_slices_back(here):
    m = here.c.recv()
    here.c.send([m[i::7] for i in range(7)])
    return bytes(m)


@pytest.mark.parametrize("piece", [0, 1, 100, 5000, 200_000])
def test_a_hundred_pieces(link, piece):
    """A list of buffers is one message; sender and receiver may divide it differently."""
    pieces = [bytes([i]) * (piece + i % 3) for i in range(100)]
    whole = b"".join(pieces)
    link.peer.begin(send_slices_back)
    link.c.send(pieces)
    into = [bytearray(len(whole) // 50 + 1) for _ in range(50)]
    status = link.c.recv(into, timeout=BOUND)
    assert status.nbytes == len(whole)
    assert link.peer.result() == whole
    back = b"".join(whole[i::7] for i in range(7))
    assert b"".join(into)[: len(whole)] == back


def send_two(here, n):
    here.c.send(bytes([1]) * n)
    here.c.send(b"next")


@pytest.mark.parametrize("nbytes", [10, 3000, 100_000, 3_000_000])
def test_truncation(link, nbytes):
    """A message too long for its buffer fills it and raises Truncated with the true length; the
    next message is complete."""
    link.peer.begin(send_two, n=nbytes)
    buffer = bytearray(nbytes // 2)
    with pytest.raises(pscompy.Truncated) as caught:
        link.c.recv(buffer, timeout=BOUND)
    assert caught.value.nbytes == nbytes
    assert buffer == bytes([1]) * (nbytes // 2)
    assert link.c.recv(timeout=BOUND) == b"next"
    link.peer.result()


GOOD = {
    "bytes": lambda: b"x" * 64,
    "bytearray": lambda: bytearray(b"x" * 64),
    "memoryview": lambda: memoryview(b"x" * 64),
    "array": lambda: array.array("B", b"x" * 64),
    "numpy": lambda: np.frombuffer(b"x" * 64, dtype="u1").reshape(8, 8),
    "ctypes": lambda: (ctypes.c_char * 64).from_buffer_copy(b"x" * 64),
    "mmap": lambda: mapped(),
    "slice": lambda: memoryview(b"xx" * 64)[:64],
}


def mapped():
    memory = mmap.mmap(-1, 64)
    memory[:] = b"x" * 64
    return memory


@pytest.mark.parametrize("kind", GOOD)
def test_things_with_a_buffer(link, kind):
    link.peer.begin(lambda here: here.c.recv() == b"x" * 64)
    link.c.send(GOOD[kind]())
    assert link.peer.result()


@pytest.mark.parametrize("post", [False, True])
@pytest.mark.parametrize(
    "thing",
    [np.zeros((8, 8))[:, ::2], np.zeros((8, 8), order="F"), memoryview(bytes(64))[::2]],
    ids=["column", "fortran", "strided"],
)
def test_what_is_not_contiguous(link, thing, post):
    """Memory that is not contiguous is refused in a list, before anything is sent."""
    send = link.c.isend if post else link.c.send
    receive = link.c.irecv if post else link.c.recv
    for call in (send, receive):
        with pytest.raises(BufferError):
            call([bytearray(8), thing])
    check_echo(link)


def test_what_cannot_be_written_to(link):
    for thing in (b"12345678", memoryview(b"12345678"), np.zeros(8).data.toreadonly(), [b"1234"]):
        for receive in (link.c.recv, link.c.irecv):
            with pytest.raises(BufferError):
                receive(thing)
    check_echo(link)


@pytest.mark.parametrize(
    "thing", [np.array([None, {}]), "text", 5, None, {}, object(), [1, 2], ["a"], 3.5], ids=nameless
)
def test_what_is_no_buffer(link, thing):
    with pytest.raises(TypeError):
        link.c.send(thing)
    if thing is not None:
        with pytest.raises(TypeError):
            link.c.irecv(thing)
    check_echo(link)


@pytest.mark.parametrize("tag", [-1, -2, 1 << 31, 1 << 40, "a", 1.5, None])
def test_bad_tags(link, tag):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        link.c.send(b"x", tag)
    if tag != -1:
        with pytest.raises((ValueError, TypeError, OverflowError)):
            link.c.irecv(tag=tag)
    check_echo(link)


def send_extreme_tags(here):
    here.c.send(b"first", 0)
    here.c.send(b"last", (1 << 31) - 1)


def test_extreme_tags(link):
    link.peer.begin(send_extreme_tags)
    assert link.c.recv_status((1 << 31) - 1, timeout=BOUND) == (b"last", (link.c, (1 << 31) - 1, 4))
    assert link.c.recv_status(0, timeout=BOUND) == (b"first", (link.c, 0, 5))
    link.peer.result()


def reuse_memory(here):
    here.junk = [bytes([255]) * 5_120_000 for _ in range(4)]


def test_a_buffer_in_flight_is_kept(link):
    """The program drops the buffer of a send in flight; the message arrives unchanged."""
    link.peer(lambda here: here.c.isend(bytes(range(256)) * 20_000) and gc.collect())
    link.peer(reuse_memory)
    link.peer.begin(lambda here: here.c.recv())
    assert link.c.recv(timeout=BOUND) == bytes(range(256)) * 20_000
    link.c.send(b"")
    link.peer.result()
