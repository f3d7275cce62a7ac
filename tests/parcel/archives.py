"""Objects that archives take apart, and a peer that puts them together again."""

from __future__ import annotations

import array
import collections
import datetime
import pickle

import numpy as np

from pscompy.parcel import archive
from pscompy.parcel.pickling import Pickle

ZERO_COPY = 4096
HEAD, ENTRY = 32, 16


class Peer:
    """Copies the archive of an object, as a network does."""

    def __init__(self, obj, room=0, serialiser=None, ident=7):
        self.serialiser = serialiser or Pickle()
        made = archive.dump(obj, self.serialiser, ZERO_COPY)
        pieces, outside = ([made], []) if type(made) is bytes else made.pack(ident, room)
        self.head = bytearray().join(pieces)
        self.outside = [bytearray(chunk) for chunk in outside]

    def load(self):
        if self.head[:1] == archive.PICKLE_BYTE:
            return archive.restore(self.head, (), self.serialiser)
        return archive.load(archive.parse(self.head), self.outside, self.serialiser)


def same(a, b):
    """Check that both are equal and of the same types."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.flags.writeable) == (b.dtype, b.shape, b.flags.writeable)
        return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, memoryview):
        return (a.format, a.shape, a.readonly, a) == (b.format, b.shape, b.readonly, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    return a == b


class Grid:
    """A user's class with a method of its own for pickling."""

    def __init__(self, name, field):
        self.name = name
        self.field = field

    def __reduce_ex__(self, protocol):
        return Grid, (self.name, pickle.PickleBuffer(self.field) if protocol >= 5 else self.field)

    def __eq__(self, other):
        return self.name == other.name and bytes(self.field) == bytes(other.field)

    __hash__ = None


def numbers(count, writeable=True, dtype=np.float64):
    made = np.arange(count).astype(dtype)
    made.flags.writeable = writeable
    return made


OBJECTS = {
    "none": None,
    "nested": {"a": [1, (2.5, "x")], "b": {"c": {3, 4}, None: b"bytes"}},
    "array": numbers(100_000),
    "short array": numbers(10),
    "read-only array": numbers(5000, writeable=False),
    "Fortran": np.asfortranarray(numbers(10_000).reshape(100, 100)),
    "every second": numbers(20_000)[::2],
    "a column": numbers(40_000).reshape(200, 200)[:, 3],
    "backwards": numbers(20_000)[::-1],
    "no elements": np.empty((0, 5)),
    "no dimensions": np.array(3.5),
    "a record": np.zeros(1000, "i4,f8"),
    "times": np.arange(1000).astype("M8[s]"),
    "texts": np.array(["one", "three"] * 2000),
    "objects": np.array([None, "x", (1, 2)], object),
    "many arrays": [numbers(600 + n) for n in range(40)],
    "array twice": [numbers(5000)] * 2,
    "bytes": b"x" * 10_000,
    "bytearray": bytearray(b"y" * 10_000),
    "array.array": array.array("d", [1.5] * 2000),
    "memoryview": memoryview(b"abcd" * 3000),
    "memoryview of doubles": memoryview(numbers(3000)),
    "memoryview with gaps": memoryview(numbers(3000))[::2],
    "read-only memoryview with gaps": memoryview(numbers(3000)).toreadonly()[::2],
    "memoryview of no rows": memoryview(np.empty((0, 5))),
    "memoryview of no doubles": memoryview(np.empty(0)).toreadonly(),
    "nested memoryview": [memoryview(b"abcd" * 3000), memoryview(b"short")],
    "no bytes": [b"", bytearray(), memoryview(b"")],
    "long text": "text" * 50_000,
    "dates": [datetime.datetime(2024, 2, 29), datetime.timedelta(3)],
    "deque": collections.deque([numbers(2000)], 5),
}
