"""Archives of other packages' classes, of other serialisers, and of names that are restricted."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from archives import OBJECTS, ZERO_COPY, Grid, Peer, numbers, same

import pscompy
from pscompy.parcel import archive
from pscompy.parcel.pickling import Cloudpickle, Pickle, Pickling, Restricted

# ---- classes of other packages ----


def test_pandas():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame({"a": numbers(10_000), "b": numbers(10_000, dtype=np.int32)})
    peer = Peer(table)
    assert sum(map(len, peer.outside)) >= 120_000
    assert peer.load().equals(table)


def test_arrow():
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = arrow.table({"a": numbers(10_000)})
    peer = Peer(table)
    assert sum(map(len, peer.outside)) >= 80_000
    assert peer.load().equals(table)


def test_cloudpickle():
    pytest.importorskip("cloudpickle", reason="cloudpickle is not installed")
    field = numbers(5000)
    made = Peer(lambda: field, serialiser=Cloudpickle())
    assert len(made.outside) == 1
    assert archive.load(archive.parse(made.head), made.outside, Pickle())()[7] == 7


def test_cloudpickle_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cloudpickle", None)
    with pytest.raises(pscompy.Unsupported, match="pip install cloudpickle"):
        Cloudpickle()


# ---- names that a pickle may use ----


class Evil:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def test_restricted_refuses_what_is_not_in_the_list():
    import os

    for function in (os.system, eval, exec, getattr, __import__, open):
        data = pickle.dumps(Evil(function, "true"), 5)
        with pytest.raises(pscompy.ParcelError, match="PSP_PARCEL_ALLOW"):
            archive.restore(data, (), Restricted(Pickle()))


def test_restricted_refuses_parts_of_what_is_allowed():
    data = b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93."
    with pytest.raises(pscompy.ParcelError, match="not in the list"):
        archive.restore(data, (), Restricted(Pickle()))


@pytest.mark.parametrize("name", OBJECTS)
def test_restricted_reads_plain_data(name):
    assert same(Peer(OBJECTS[name], 20_000, Restricted(Pickle())).load(), OBJECTS[name])


def test_restricted_reads_what_the_program_allows():
    data = pickle.dumps(Grid("x", b"y"), 5)
    allowed = f"{Grid.__module__}:Grid"
    assert archive.restore(data, (), Restricted(Pickle(), [allowed])) == Grid("x", b"y")
    with pytest.raises(pscompy.ParcelError, match="Grid"):
        archive.restore(data, (), Restricted(Pickle()))


# ---- foreign serialisers ----


class Json:
    """A serialiser that does not use chunks."""

    name = "json"

    @staticmethod
    def dumps(obj, keep):
        import json

        return json.dumps(obj).encode()

    @staticmethod
    def loads(data, chunks):
        import json

        return json.loads(bytes(data))


def test_another_serialiser():
    assert Peer({"a": [1, None]}, serialiser=Json).load() == {"a": [1, None]}


def test_the_receiver_has_another_serialiser():
    peer = Peer([1], serialiser=Json)
    with pytest.raises(pscompy.ParcelError, match=r"'json'.*'pickle'"):
        archive.load(archive.parse(peer.head), [], Pickle())


CONFIG = {"PARCEL_UNPICKLE": "any", "PARCEL_ALLOW": (), "PARCEL_ZERO_COPY": 1}


@pytest.mark.parametrize("name", ["nothing", "no.such:thing", "os:nothing", "os:path", ":"])
def test_serialisers_that_cannot_be_used(name):
    with pytest.raises(pscompy.ConfigError, match="PSP_PARCEL_SERIALISER"):
        Pickling({**CONFIG, "PARCEL_SERIALISER": name})


def test_heads_that_are_alike_have_idents_of_their_own():
    made = archive.dump(numbers(10_000), Pickle(), ZERO_COPY)
    heads = [b"".join(made.pack(ident, 0)[0]) for ident in (5, 6, 5)]
    assert [archive.parse(head).ident for head in heads] == [5, 6, 5]
    # the magic number, and an ident that is larger than any tag
    for place, byte in ((0, b"x"), (7, b"\xff")):
        with pytest.raises(pscompy.ProtocolError):
            archive.parse(heads[0][:place] + byte + heads[0][place + 1 :])
