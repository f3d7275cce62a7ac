"""PSP_PARCEL_UNPICKLE=restricted: plain data is received; any other pickle is refused or becomes
data no longer than the bytes that have arrived, and never harms the process that reads it.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import uuid

import numpy as np
import pytest
from forged import FORGED, LONG, name, pickled, program

import pscompy
from pscompy.parcel import archive
from pscompy.parcel.pickling import Pickle, Restricted
from tests import program as remote

TEXT = "w" if "w" in array.typecodes else "u"  # "u" is deprecated where "w" exists
PICKLES = int(os.environ.get("PSCOMPY_TEST_PICKLES", "6000"))


def read(data, chunks=(), names=()):
    return archive.restore(data, chunks, Restricted(Pickle(), names))


def carried(obj, dumps=pickle.dumps):
    """The object that is received here from a peer that uses plain pickle."""
    left = []
    data = dumps(obj, 5, buffer_callback=left.append)
    return read(data, [bytearray(buffer.raw()) for buffer in left])


# ---- plain data ----


class Point:
    """A class of the program."""

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __eq__(self, other):
        return self.__dict__ == other.__dict__

    __hash__ = None


class Slotted:
    __slots__ = ("x",)

    def __eq__(self, other):
        return self.x == other.x

    __hash__ = None


ZONE = datetime.timezone(datetime.timedelta(hours=2), "here")
DATA = {
    "numbers": [0, 255, 65535, 1 << 31, -1, -(1 << 40), 1 << 5000, 1.5, 2j, True, None],
    "texts": ["x", "é" * 300, "long" * 20_000, b"x", b"y" * 300, b"z" * 70_000, "\ud800"],
    "containers": ({1, (2, 3)}, frozenset({4}), [[]], {}, (), (1,), (1, 2, 3, 4), bytearray(b"x")),
    "collections": [
        collections.OrderedDict(a=1, b=[2]),
        collections.Counter("abracadabra"),
        collections.deque([1, 2, 3]),
        collections.deque([1], 7),
    ],
    "times": [
        datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29, 23, 59, 58, 999999),
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=ZONE, fold=1),
        datetime.time(1, 2, 3, 4),
        datetime.time(1, 2, fold=1, tzinfo=datetime.timezone.utc),
        datetime.timedelta(-3, 5, 7),
    ],
    "more": [
        decimal.Decimal("-1.50"),
        fractions.Fraction(-2, 3),
        uuid.UUID(int=77),
        range(3, 9, 2),
    ],
    "slices": [slice(1, None, 2), slice(None)],
    "arrays of numbers": [array.array("d", [1.5]), array.array(TEXT, "text"), array.array("h")],
    "classes": {"kinds": [int, float, str, list, dict, bytes, datetime.date, np.dtype, np.ndarray]},
    "scalars": [np.float64(1.5), np.int8(-3), np.bool_(True), np.datetime64("2024-02-29")],
    "more scalars": [np.str_("text"), np.bytes_(b"text"), np.complex64(1j), np.timedelta64(5, "D")],
    "types": [
        np.dtype(text) for text in ("f8", ">i4", "U5", "M8[25us]", "m8[D]", "V7", "O", "?", "S")
    ],
    "records": [
        np.dtype([("a", "i1"), ("b", ">f8", (2, 3))], align=True),
        np.dtype([("outer", [("inner", "U3"), ("time", "M8[D]")]), ("more", "f4")]),
    ],
}
ARRAYS = {
    "plain": np.arange(5.0),
    "read-only": np.frombuffer(b"12345678", np.int16),
    "Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "transposed": np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0),
    "every second": np.arange(20)[::2],
    "no dimensions": np.array(3.5),
    "no elements": np.empty((0, 5)),
    "texts": np.array([["a", "bcd"]]),
    "times": np.array(["2024-02-29", "NaT"], "M8[D]"),
    "big-endian": np.arange(5, dtype=">i4"),
    "objects": np.array([None, [1], (2, "x"), np.arange(3)], object),
    "truths": np.array([True, False]),
    "records": np.zeros(3, [("a", "i4"), ("b", "f8", (2,))]),
    "record": np.array([(1, 2.5)], "i4,f8")[0],
}


def same_arrays(a, b):
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    return repr(a) == repr(b)


@pytest.mark.parametrize("name", DATA)
def test_plain_data(name):
    made = carried(DATA[name])
    assert made == DATA[name]
    assert repr(made) == repr(DATA[name])


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_as_numpy_pickles_them(name):
    assert same_arrays(carried(ARRAYS[name]), ARRAYS[name])
    assert same_arrays(read(pickle.dumps(ARRAYS[name], 5)), ARRAYS[name])
    twice = carried([ARRAYS[name], ARRAYS[name]])
    assert twice[0] is twice[1]


def test_types_are_kept_once_they_are_complete():
    kind = np.dtype(">f8")
    made = carried([kind, np.arange(3, dtype=kind), kind])
    assert made[0] is made[2]
    assert made[1].dtype == kind


def test_exceptions_with_what_they_carry():
    error = OSError(2, "lost", "name")
    error.add_note("noted") if hasattr(error, "add_note") else None
    error.code = 7
    made = carried([error, KeyError("x"), AttributeError("y", name="n")])
    assert repr(made) == "[FileNotFoundError(2, 'lost'), KeyError('x'), AttributeError('y')]"
    assert (made[0].filename, made[0].code) == ("name", 7)
    assert made[0].__dict__ == error.__dict__


def test_recursion():
    obj = [{}]
    obj[0]["self"] = obj
    made = carried(obj)
    assert made[0]["self"] is made


def test_a_receiver_gets_the_senders_own_memory():
    chunk = bytearray(np.arange(4.0))
    left = []
    made = read(pickle.dumps([np.arange(4.0)], 5, buffer_callback=left.append), [chunk])[0]
    made[0] = 9
    assert np.frombuffer(chunk)[0] == 9


def test_classes_that_the_program_allows():
    names = [f"{__name__}:Point", f"{__name__}:Slotted"]
    slotted = Slotted()
    slotted.x = [1]
    assert read(pickle.dumps([Point(1, {2}), slotted], 5), names=names) == [Point(1, {2}), slotted]


# ---- forged pickles ----


def restores_its_input():
    np.empty(0)  # numpy is imported before the memory is measured
    data = sys.stdin.buffer.read()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        archive.restore(data, (), Restricted(Pickle()))
    except pscompy.ParcelError as error:
        print("refused", error)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print("grown", grown >> 10, "MiB")


@pytest.mark.parametrize("forged", FORGED)
def test_forged(forged):
    """The pickle is read in a process of its own, which must neither crash nor grow."""
    done = subprocess.run(
        [sys.executable, "-c", remote.program(restores_its_input)],
        input=FORGED[forged],
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"refused" in done.stdout, done.stdout
    # A million tuples that refer to each other take 64 MiB, however they are pickled.
    assert int(done.stdout.split()[-2]) < 300, done.stdout


def test_what_is_allowed_stays_as_it_was():
    before = {kind: dict(vars(kind)) for kind in (uuid.UUID, fractions.Fraction, Point)}
    for forged in FORGED.values():
        with pytest.raises(pscompy.ParcelError):
            read(forged, names=[f"{__name__}:Point"])
    forged = program(name(f"{__name__}:Point"), pickled({"__eq__": 1}), pickle.BUILD)
    with pytest.raises(pscompy.ParcelError, match="state for a Point"):
        read(forged, names=[f"{__name__}:Point"])
    assert before == {kind: dict(vars(kind)) for kind in before}


class Kind(type):
    pass


class OfKind(metaclass=Kind):
    pass


def test_a_class_gets_no_state_although_its_metaclass_is_allowed():
    kinds = [f"{__name__}:{it.__name__}" for it in (Kind, OfKind)]
    known = name(kinds[0]) + pickle.POP
    forged = program(known, name(kinds[1]), pickled({"__eq__": 1}), pickle.BUILD)
    with pytest.raises(pscompy.ParcelError, match="state for a OfKind"):
        read(forged, names=kinds)
    assert "__eq__" not in vars(OfKind)


# ---- fuzz ----


def seeds():
    """Pickles of plain data, each with its chunks."""
    for obj in [*DATA.values(), *ARRAYS.values(), [OSError(2, "x"), np.arange(9)], list(DATA)]:
        if obj is DATA["texts"]:
            continue  # too long: a random change would rarely hit its structure
        left = []
        yield pickle.dumps(obj, 5), []
        data = pickle.dumps(obj, 5, buffer_callback=left.append)
        yield data, [bytes(buffer.raw()) for buffer in left]
    yield from ((data, []) for data in FORGED.values() if len(data) < 2000)


OPCODES = bytes(code for code in range(256) if pickle._Unpickler.dispatch.get(code))
LENGTHS = [struct.pack(f"<{form}", n) for n in (0, 1, 255, 1 << 30) for form in "BHIQ" if n < 256]
LENGTHS += [b"\xff" * 4, b"\xff" * 8, LONG, struct.pack("<I", 1 << 30)]


def mutated(dice, data, other):
    data = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        at = dice.randrange(len(data) + 1)
        how = dice.randrange(7)
        if how == 0 and at < len(data):
            data[at] = dice.randrange(256)
        elif how == 1:
            data[at:at] = bytes([dice.choice(OPCODES)])
        elif how == 2:
            del data[at : at + dice.randrange(1, 9)]
        elif how == 3:
            data[at:at] = dice.choice(LENGTHS)
        elif how == 4:
            begin = dice.randrange(len(other) + 1)
            data[at:at] = other[begin : begin + dice.randrange(1, 60)]
        elif how == 5:
            begin = dice.randrange(len(data) + 1)
            data[at:at] = data[begin : begin + dice.randrange(1, 60)]
        elif at < len(data):
            data[at] ^= 1 << dice.randrange(8)
    return bytes(data)


def use(made, depth=0):
    """Use the whole object, as a program may; exceptions are allowed."""
    try:
        if isinstance(made, np.ndarray):
            assert made.nbytes <= 1 << 20
            made.tolist(), made.copy(), made.sum() if made.dtype.kind in "biufc" else None
        repr(made), hash(made)
    except (TypeError, ValueError, OverflowError, AttributeError, RecursionError):
        pass
    if depth < 4 and isinstance(made, (list, tuple, set, frozenset, collections.deque)):
        for item in list(made)[:50]:
            use(item, depth + 1)


def test_mutated_pickles_do_no_harm():
    """PSCOMPY_TEST_PICKLES sets the number of mutated pickles."""
    dice = random.Random(12)
    known = list(seeds())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = collections.Counter()
    for _ in range(PICKLES):
        (data, chunks), (other, _) = dice.choice(known), dice.choice(known)
        forged = mutated(dice, data, other)
        try:
            made = read(forged, [bytearray(chunk) for chunk in chunks])
        except pscompy.ParcelError:
            ends["refused"] += 1
        else:
            ends["read"] += 1
            use(made)
            del made
    print(dict(ends))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 500 << 10, f"{grown >> 10} MiB more"
    assert ends["read"] > PICKLES // 100
    assert ends["refused"] > PICKLES // 100
