"""Pickles that were written by hand to do harm, and how to write more."""

from __future__ import annotations

import pickle
import struct

import numpy as np

TEXT = b"\x8c"


def text(word):
    return TEXT + bytes([len(word)]) + word.encode()


def name(full):
    module, _, attribute = full.partition(":")
    return text(module) + text(attribute) + pickle.STACK_GLOBAL


def pickled(obj):
    """The opcodes that push `obj`."""
    data = pickle.dumps(obj, 5)
    return data[11:-1] if data[2:3] == pickle.FRAME else data[2:-1]


def program(*parts):
    return b"\x80\x05" + b"".join(parts) + pickle.STOP


def call(full, *args):
    return name(full) + pickle.MARK + b"".join(map(pickled, args)) + pickle.TUPLE + pickle.REDUCE


TYPE = call("numpy:dtype", "V8", False, True)
OBJECTS = pickle.dumps(np.dtype("O"), 5)[11:-1]
FLOATS = pickle.dumps(np.dtype("f8"), 5)[11:-1]
POINTERS = b"".join(  # a record type that contains an object and claims to contain none
    (
        TYPE + pickle.MARK + pickled(3) + pickled("|") + pickle.NONE + pickled(("a",)),
        pickle.EMPTY_DICT + pickled("a") + OBJECTS + pickled(0) + pickle.TUPLE2 + pickle.SETITEM,
        pickled(8) + pickled(1) + pickled(0) + pickle.TUPLE + pickle.BUILD,
    )
)
LONG = struct.pack("<Q", (1 << 62))
FORGED = {
    "a length without bytes": program(pickle.BYTEARRAY8 + LONG),
    "bytes that have not come": program(pickle.BINBYTES8 + LONG),
    "text that has not come": program(pickle.BINUNICODE8 + LONG),
    "a frame": program(pickle.FRAME + LONG, pickle.BINBYTES8 + LONG),
    "a number that has not come": program(pickle.LONG4 + b"\xff\xff\xff\x7f"),
    "a memo of 4 GiB": program(pickle.NONE, pickle.LONG_BINPUT + b"\xff\xff\xff\xff"),
    "bytearray of a length": program(call("builtins:bytearray", 3 << 30)),
    "bytes of a length": program(call("builtins:bytes", 3 << 30)),
    "a list of a range": program(
        name("builtins:list"), call("builtins:range", 0, 1 << 40, 1), pickle.TUPLE1, pickle.REDUCE
    ),
    "a deque of a range": program(
        name("collections:deque"),
        call("builtins:range", 0, 1 << 40, 1),
        pickle.TUPLE1 + pickle.REDUCE,
    ),
    "a huge fraction": program(call("fractions:Fraction", "1e999999999")),
    "the same bytes many times": program(
        pickled(b"x" * 70_000),
        pickle.MEMOIZE,
        (name("builtins:bytes") + pickle.BINGET + b"\0" + pickle.TUPLE1 + pickle.REDUCE) * 1000,
    ),
    "an array of a shape alone": program(call("numpy:ndarray", (1 << 40,))),
    "objects at an address": program(
        name("numpy._core.numeric:_frombuffer"),
        pickle.MARK + pickled(bytearray(b"A" * 8)) + POINTERS + pickled((1,)) + pickled("C"),
        pickle.TUPLE + pickle.REDUCE,
    ),
    "an object at an address": program(
        name("numpy._core.multiarray:scalar"), POINTERS, pickled(b"A" * 8), pickle.TUPLE2, b"R"
    ),
    "a type with objects over bytes": program(
        name("numpy._core.numeric:_frombuffer"),
        pickle.MARK,
        pickled(bytearray(b"A" * 8)),
        OBJECTS,
        pickled((1,)),
        pickled("C"),
        pickle.TUPLE + pickle.REDUCE,
    ),
    "a field outside of its record": program(
        TYPE,
        pickle.MARK,
        pickled(3) + pickled("|") + pickle.NONE + pickled(("a",)),
        pickle.EMPTY_DICT + pickled("a") + FLOATS,
        pickled(1 << 20) + pickle.TUPLE2 + pickle.SETITEM,
        pickled(8) + pickled(1) + pickled(16) + pickle.TUPLE + pickle.BUILD,
    ),
    "an array longer than its bytes": program(
        name("numpy._core.multiarray:_reconstruct"),
        name("numpy:ndarray") + pickled((0,)) + pickled(b"b") + pickle.TUPLE3 + pickle.REDUCE,
        pickle.MARK + pickled(1) + pickled((1 << 20,)),
        FLOATS + pickle.NEWFALSE + pickled(b"12345678"),
        pickle.TUPLE + pickle.BUILD,
    ),
    "an array that lacks its state": program(
        name("numpy._core.multiarray:_reconstruct"),
        name("numpy:ndarray") + pickled((0,)) + pickled(b"b") + pickle.TUPLE3 + pickle.REDUCE,
    ),
    "a type that lacks its state": program(TYPE),
    "state for a class": program(
        name("uuid:UUID"), pickle.NONE, pickled({"__init__": None}), pickle.TUPLE2, pickle.BUILD
    ),
    "state for another class": program(
        name("fractions:Fraction"), pickle.NONE, pickled({"from_float": 1}), b"\x86b"
    ),
    "state for a function": program(
        name("pscompy.parcel.array_codec:restore"), pickled({"x": 1}), pickle.BUILD
    ),
    "state for our maker": program(
        name("array:_array_reconstructor"), pickle.NONE, pickled({"make": 1}), b"\x86b"
    ),
    "state for a list": program(pickle.EMPTY_LIST, pickled({"x": 1}), pickle.BUILD),
    "a date that is none": program(call("datetime:datetime", b"\0\0\x01\xff\xff\xff\xff\0\0\0")),
    "an array over an array": program(
        name("numpy._core.numeric:_frombuffer") + pickle.MARK,
        name("numpy._core.numeric:_frombuffer") + pickle.MARK + pickled(bytearray(8)) + FLOATS,
        pickled((1,)) + pickled("C") + pickle.TUPLE + pickle.REDUCE + pickle.READONLY_BUFFER,
        FLOATS + pickled((1,)) + pickled("C") + pickle.TUPLE + pickle.REDUCE,
    ),
    "deep keys": program(
        pickle.EMPTY_DICT, pickle.EMPTY_TUPLE, pickle.TUPLE1 * 1_000_000, b"Ns"
    ),
    "wide keys": program(
        pickle.EMPTY_DICT, pickle.EMPTY_TUPLE, (pickle.MEMOIZE + b"h\0\x86") * 1, b"Ns",
        pickle.EMPTY_TUPLE,
        b"".join(pickle.MEMOIZE + b"h" + bytes([n]) + pickle.TUPLE2 for n in range(1, 200)),
        pickle.NONE + pickle.SETITEM,
    ),
    "an extension": program(pickle.EXT1 + b"\x01"),
    "a persistent one": program(pickle.NONE, pickle.BINPERSID),
    "protocol 0": b"cos\nsystem\n(S'true'\ntR.",
    "an instance of protocol 0": program(b"(ios\nsystem\n"),
    "a constructor with keywords": program(
        name("builtins:object"), pickle.EMPTY_TUPLE, pickled({"x": 1}), pickle.NEWOBJ_EX
    ),
    "an exception with a method": program(
        call("builtins:ValueError", "x"), pickled({"with_traceback": 1}), pickle.BUILD
    ),
    "an exception with another class": program(
        call("builtins:ValueError", "x"), pickled({"__class__": 1}), pickle.BUILD
    ),
    "an exception with a range of arguments": program(
        call("builtins:ValueError", "x"),
        pickle.EMPTY_DICT + pickled("args") + call("builtins:range", 0, 20_000_000, 1) + b"sb",
    ),
    "a text in a record that cannot be": pickle.dumps(
        np.array([("abcd",)], [("text", "U4")]), 5
    ).replace("abcd".encode("utf-32-le"), b"\xff" * 16),
    "nothing": program(),
    "no end": program(pickle.NONE)[:-1],
    "a text that cannot be": pickle.dumps(np.array(["abcd"]), 5).replace(
        "abcd".encode("utf-32-le"), b"\xff" * 16
    ),
}  # fmt: skip
