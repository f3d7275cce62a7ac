"""Archives alone: objects are taken apart and put together again, and forged archives are
refused.
"""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest
from archives import ENTRY, HEAD, OBJECTS, ZERO_COPY, Grid, Peer, numbers, same
from hypothesis import given, settings
from hypothesis import strategies as st

import pscompy
from pscompy.parcel import archive, array_codec
from pscompy.parcel.pickling import Pickle, Restricted


@pytest.mark.parametrize("room", [0, 20_000, 1 << 20])
@pytest.mark.parametrize("name", OBJECTS)
def test_what_is_taken_apart_comes_together(name, room):
    assert same(Peer(OBJECTS[name], room).load(), OBJECTS[name])


def test_recursion_and_identity():
    obj = [numbers(5000), {}]
    obj[1]["self"] = obj
    made = Peer(obj).load()
    assert made[1]["self"] is made


def test_equal_shapes_are_written_once():
    short, long = (
        len(archive.dump([np.ones((2, 3, 4, 5)) for _ in range(count)], Pickle(), ZERO_COPY))
        for count in (10, 60)
    )
    assert long - short <= 50 * (960 + 20)  # the numbers, their length, and references


def test_a_users_class():
    grid = Grid("wind", bytearray(range(256)) * 40)
    made = Peer(grid)
    assert len(made.outside) == 1
    assert made.load() == grid


def test_chunks_are_the_objects_own_memory():
    field = numbers(100_000)
    (chunk,) = archive.dump([field], Pickle(), ZERO_COPY).chunks
    field[5] = -1
    assert chunk.cast("d")[5] == -1


def test_what_arrives_is_not_copied():
    peer = Peer([numbers(5000), numbers(6000)], room=50_000)
    made = peer.load()
    peer_bytes = np.frombuffer(peer.outside[0] if peer.outside else peer.head, np.uint8)
    assert any(np.shares_memory(array, peer_bytes) for array in made)


def test_chunks_in_a_head_are_aligned():
    made = Peer([numbers(600, dtype=np.int8)] + [numbers(700 + n) for n in range(3)], room=1 << 20)
    assert not made.outside
    loaded = made.load()
    assert all(array.flags.aligned for array in loaded)


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_the_head_is_as_short_as_promised(count):
    fields = [numbers(1000 + n) for n in range(count)]
    kept = []
    small = pickle.dumps(fields, 5, buffer_callback=kept.append)
    assert len(Peer(fields).head) <= len(small) + 200 + ENTRY * count


def test_what_fits_is_in_the_head():
    fields = [numbers(1000), numbers(100_000), numbers(1001)]
    peer = Peer(fields, room=17_000)
    assert [len(chunk) for chunk in peer.outside] == [800_000]
    assert len(peer.head) <= 17_000
    assert same(peer.load(), fields)


def test_an_object_without_buffers_is_its_pickle():
    assert pickle.loads(archive.dump({"a": 1}, Pickle(), ZERO_COPY)) == {"a": 1}


@pytest.mark.parametrize("writable", [True, False])
def test_a_short_array_is_its_pickle(writable):
    field = np.arange(9.0).reshape(3, 3)
    field.flags.writeable = writable
    made = archive.dump(field, Pickle(), ZERO_COPY)
    again = pickle.loads(made)
    assert isinstance(made, bytes)
    assert (again == field).all()
    assert again.flags.writeable == writable


def test_short_arrays_within_an_object_are_part_of_its_pickle():
    fields = [np.ones(128), np.asfortranarray(np.arange(256.0).reshape(8, 32)), np.ones(400)]
    fields[2].flags.writeable = False
    made = archive.dump(fields, Pickle(), ZERO_COPY)
    again = pickle.loads(made)
    assert isinstance(made, bytes)
    assert same(again, fields)
    assert [it.flags.writeable for it in again] == [True, True, False]
    assert not isinstance(archive.dump(fields, Pickle(), 1024), bytes)


@pytest.mark.parametrize(
    "field",
    [
        np.arange(6, dtype=">i2").reshape(2, 3),
        np.ones((1,) * 32),
        np.array(2 + 1j),
        np.arange(9).view(np.recarray),
        np.ma.array([1, 2], mask=[0, 1]),
        np.arange(30)[::3],
    ],
    ids=lambda field: f"{type(field).__name__} {field.dtype} {field.ndim}",
)
def test_an_array_is_the_same_whatever_the_limit_for_copies(field):
    for copied in (1, 10_000):
        made = pickle.loads(Pickle(copied).dumps([field], lambda buffer: True))[0]
        assert type(made) is type(field)
        assert (made.dtype, made.strides) == (field.dtype, np.array(field).strides)
        assert np.array_equal(made, field)


@pytest.mark.parametrize(
    ("numbers", "kind", "shape"),
    [
        (bytearray(8), np.dtype("d"), (2,)),
        (bytearray(16), np.dtype("d"), (1,)),
        (bytearray(8), np.dtype("O"), (1,)),
        (bytearray(8), np.dtype("U2"), (1,)),
        (bytearray(8), float, (1,)),
        (bytearray(8), np.dtype("d"), (-1, -1)),
        (bytearray(8), np.dtype("d"), (1 << 62, 16, 0, 1 << 62)),
        (bytearray(8), np.dtype("d"), (1,) * 33),
        (bytearray(8), np.dtype("d"), [1]),
        (bytearray(8), np.dtype("d"), ("1",)),
        (1, np.dtype("d"), (1,)),
    ],
)
def test_numbers_that_are_no_array_are_refused(numbers, kind, shape):
    with pytest.raises((TypeError, ValueError)):
        array_codec.restore(numbers, kind, shape, "C")


def test_the_threshold_is_the_shortest_that_is_not_copied():
    below, at = numbers(ZERO_COPY - 1, dtype=np.int8), numbers(ZERO_COPY, dtype=np.int8)
    _, outside = archive.dump([below, at], Pickle(), ZERO_COPY).pack(1, room=0)
    assert [chunk.nbytes for chunk in outside] == [ZERO_COPY]
    below[:] = 3
    peer = Peer([below, at])
    made = peer.load()
    assert not np.shares_memory(made[0], np.frombuffer(peer.head, np.uint8))
    assert same(made, [below, at])


def test_more_than_4_gib(tmp_path):
    """The array is a sparse file; neither side touches its pages."""
    nbytes = (4 << 30) + 5
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(nbytes)
    huge = np.memmap(tmp_path / "sparse", np.uint8, "c")
    made = archive.dump(np.asarray(huge), Pickle(), ZERO_COPY)
    pieces, (outside,) = made.pack(1, 1 << 20)
    head = archive.parse(b"".join(pieces))
    assert head.outside == [nbytes]
    assert archive.load(head, [outside], Pickle()).nbytes == nbytes


# ---- properties ----

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=9000),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)
arrays = st.builds(
    lambda count, dtype, writeable: numbers(count, writeable, dtype),
    st.integers(0, 3000),
    st.sampled_from(["u1", "i2", "f4", "f8", "c16"]),
    st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(plain | arrays, max_size=5), st.integers(0, 40_000))
def test_any_object_comes_together(obj, room):
    assert same(Peer(obj, room).load(), obj)


SAMPLE = bytes(Peer([numbers(600), "text", numbers(700), numbers(5000)], room=12_000).head)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(SAMPLE) - 1))
def test_truncated(length):
    with pytest.raises(pscompy.ProtocolError):
        archive.parse(SAMPLE[:length])


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, HEAD + 3 * ENTRY - 1), st.integers(0, 255)),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_forged_heads_do_no_harm(changes, lengthened):
    """Whatever a forged head says, the objects made from it lie within the bytes that have
    arrived."""
    forged = bytearray(SAMPLE)
    for at, byte in changes:
        forged[at] = byte
    if lengthened:
        forged += b"\0" * 40
    try:
        head = archive.parse(forged)
    except pscompy.ProtocolError:
        return
    inside = [inside for _, _, _, inside in head.entries if inside is not None]
    assert sum(view.nbytes for view in inside) <= len(forged)
    assert head.index.nbytes <= len(forged)


def forge(**fields):
    names = ("magic", "ident", "count", "zero", "nbytes", "name")
    good = dict(zip(names, (archive.MAGIC, 1, 0, 0, 0, b"pickle"), strict=True)) | fields
    return struct.pack("<4sIIIQ8s", *good.values())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x81",
        b"PCL\x02" + forge()[4:],
        forge(zero=1),
        forge(ident=1 << 31),
        forge(nbytes=1),
        forge(nbytes=(1 << 64) - 1),
        forge(nbytes=(1 << 64) - 33),
        forge(count=(1 << 32) - 1),
        forge(count=1),
        forge(count=1) + struct.pack("<QBB6x", (1 << 64) - 1, 1, 0),
        forge(count=1) + struct.pack("<QBB6x", 1, 1, 0),
        forge(count=1) + struct.pack("<QBB6x", 0, 3, 0),
        forge(count=1) + struct.pack("<QBB6x", 0, 0, 2),
        forge() + b"more",
    ],
)
def test_absurd_heads(data):
    with pytest.raises(pscompy.ProtocolError):
        archive.parse(data)


def test_chunks_that_are_shorter_than_the_table_says():
    peer = Peer(numbers(5000))
    head = archive.parse(peer.head)
    with pytest.raises(pscompy.ProtocolError, match="39999 bytes, its table says 40000"):
        archive.load(head, [peer.outside[0][:-1]], Pickle())


def test_fewer_chunks_than_the_table_says():
    """A peer may use the ident of an earlier head, whose chunks have been fetched."""
    peer = Peer([numbers(5000), numbers(6000)], room=0)
    with pytest.raises(pscompy.ProtocolError, match="a chunk has 0 bytes"):
        archive.load(archive.parse(peer.head), peer.outside[:1], Pickle())


def test_a_pickle_that_wants_more_chunks_than_there_are():
    index = archive.dump([numbers(5000)], Pickle(), ZERO_COPY).index
    head = archive.parse(forge(nbytes=len(index)) + index)
    with pytest.raises(pscompy.ParcelError):
        archive.load(head, [], Pickle())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_garbage_in_place_of_a_pickle(data):
    try:
        value = archive.restore(b"\x80\x05" + data, (), Restricted(Pickle()))
    except pscompy.ParcelError:
        return
    assert type(value).__module__ == "builtins"  # nothing that it names was called


# ---- arrays, which need no pickle ----


@pytest.mark.parametrize("name", ["array", "read-only array", "Fortran"])
def test_an_array_is_not_pickled(name):
    assert b"numpy" not in Peer(OBJECTS[name]).head


def array_head(index, count=1):
    entries = [struct.pack("<QBB6x", 800, 0, 0)] * count
    return archive.parse(
        b"".join((forge(nbytes=len(index), name=b"array", count=count), *entries, index))
    )


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"C<f8\0\0\0\0" + struct.pack("<Q", 101),
        b"C<f8\0\0\0\0" + struct.pack("<Q", 1 << 63),
        b"C<f8\0\0\0\0" + struct.pack("<2Q", 1 << 63, 200),
        b"C<f8\0\0\0\0" + struct.pack("<3Q", 1 << 32, 1 << 32, 0),
        b"C|O8\0\0\0\0" + struct.pack("<Q", 100),
        b"C|V8\0\0\0\0" + struct.pack("<Q", 100),
        b"C<f7\0\0\0\0" + struct.pack("<Q", 100),
        b"C\xff\xff\xff\xff\0\0\0" + struct.pack("<Q", 100),
        b"K<f8\0\0\0\0" + struct.pack("<Q", 100),
        b"C<f8\0\0\0\0" + struct.pack("<33Q", 100, *[1] * 32),
        b"C<f8\0\0\0\0" + b"odd",
    ],
)
def test_arrays_that_cannot_be(index):
    with pytest.raises(pscompy.ProtocolError):
        archive.load(array_head(index), [bytearray(800)], Pickle())


def test_an_array_of_nothing_in_a_length_beyond_all_memory():
    index = b"C<f8\0\0\0\0" + struct.pack("<2Q", 1 << 63, 0)
    head = archive.parse(
        forge(nbytes=len(index), name=b"array", count=1) + struct.pack("<QBB6x", 0, 0, 0) + index
    )
    with pytest.raises(pscompy.ProtocolError, match="no shape"):
        archive.load(head, [b""], Pickle())


def test_an_array_of_two_chunks():
    index = b"C<f8\0\0\0\0" + struct.pack("<Q", 100)
    assert archive.load(array_head(index), [bytearray(800)], Pickle()).shape == (100,)
    with pytest.raises(pscompy.ProtocolError, match="2 chunks"):
        archive.load(array_head(index, 2), [bytearray(800)] * 2, Pickle())
