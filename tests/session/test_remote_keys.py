"""Remote keys of memory: only a region's own, unaltered key is accepted, and only within the
region.
"""

from __future__ import annotations

import pytest

import pscompy

SIZE = 4096


def register(here):
    here.memory = bytearray(SIZE)
    here.region = here.session.register(here.memory)


@pytest.fixture
def link(connect, transport):
    made = connect(transport)
    made.peer(register)
    return made


def test_an_altered_key_is_refused(link):
    """Altering any byte of the key is refused, and the memory stays unchanged."""
    rkey = link.peer(lambda here: here.region.rkey)
    for place in range(len(rkey)):
        altered = bytearray(rkey)
        altered[place] ^= 1 << place % 8
        with pytest.raises(pscompy.PscomError, match="altered"):
            link.c.put(b"x" * 8, altered)
        with pytest.raises(pscompy.PscomError, match="altered"):
            link.c.get(bytearray(8), altered)
    for part in (b"", rkey[:-1], rkey + b"x", b"no key"):
        with pytest.raises(pscompy.PscomError, match="altered"):
            link.c.put(b"x", part)
    assert link.peer(lambda here: not any(here.memory))
    # The peer makes progress for operations that the fabric does not do alone.
    link.peer.begin(lambda here: here.c.recv())
    link.c.put(b"here", rkey, 5)
    link.c.send(b"done")
    link.peer.result()
    assert link.peer(lambda here: bytes(here.memory[5:9])) == b"here"


@pytest.mark.parametrize(
    ("offset", "nbytes"), [(0, SIZE + 1), (SIZE, 1), (SIZE - 3, 4), (1 << 60, 9)]
)
def test_outside_of_the_region(link, offset, nbytes):
    rkey = link.peer(lambda here: here.region.rkey)
    for access in (link.c.put, link.c.get):
        with pytest.raises(IndexError) as caught:
            access(bytearray(nbytes), rkey, offset)
        error = caught.value
        assert isinstance(error, pscompy.OutOfBounds)
        assert (error.offset, error.nbytes, error.size) == (offset, nbytes, SIZE)
        assert error.peer == link.c.peer
        assert f"{nbytes} bytes at offset {offset} exceed" in str(error)
        assert f"region of {SIZE} bytes" in str(error)
    link.c.put(b"", rkey, SIZE)


def test_a_region_that_its_owner_has_closed(link):
    rkey = link.peer(lambda here: here.region.rkey)
    link.peer(lambda here: here.region.close())
    link.peer.begin(lambda here: here.c.recv())
    for access in (link.c.put, link.c.get):
        with pytest.raises(pscompy.Closed, match="closed by its owner"):
            access(bytearray(8), rkey)
    link.c.send(b"done")
    assert link.peer.result() == b"done"


def test_a_key_that_was_made_before_anything_was_connected(open_session):
    """The job's key authenticates the remote key; making the remote key reads it."""
    session = open_session(name="early")
    memory = bytearray(8)
    region = session.register(memory)
    listening = session.listen()
    other = open_session(name="late")
    c = other.connect(listening.address)
    c.send(b"x")
    listening.accept().recv()
    c.put(b"early", region.rkey)
    assert memory == b"early\0\0\0"


def test_a_region_without_a_key_is_given_back(open_session, monkeypatch):
    monkeypatch.setattr(pscompy.api.memory, "PACKED_MAX", 4)
    session, memory = open_session(SHM=1), bytearray(8)
    held = session.stats["shm_registrations"]
    with pytest.raises(pscompy.PscomError, match="pack the remote key"):
        session.register(memory)
    assert session.stats["shm_registrations"] == held
