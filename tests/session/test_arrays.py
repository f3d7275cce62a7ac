"""recv_array makes an array for a message, and checks its length."""

from __future__ import annotations

import numpy as np
import pytest

import pscompy


def test_an_array_of_a_shape_and_a_type():
    with pscompy.World() as world:
        sent = np.arange(6.0).reshape(2, 3)
        world.send(sent, dest=0, tag=4)
        with pytest.raises(ValueError, match=r"has 48 bytes, an array of \(2, 3\) times float32"):
            world.recv_array("f4", (2, 3), tag=4)
        try:
            world.recv_array("f8", (2, 3, -1), tag=4)
        except ValueError:
            assert world.iprobe(tag=4)  # it is in its place while the exception is handled
        got = world.recv_array("f8", (2, 3), source=0, tag=4, timeout=60)
        assert (got == sent).all()
        assert got.flags.writeable
        world.send(b"12345678", dest=0)
        assert world[0].recv_array("u1", 8).tobytes() == b"12345678"
        with pytest.raises(pscompy.Timeout, match="with tag 9"):
            world.recv_array("u1", 8, tag=9, timeout=0)


def test_a_view_of_a_type_and_a_shape():
    with pscompy.World() as world:
        sent = np.arange(6.0).reshape(2, 3)
        world.send(sent, dest=0, tag=4)
        for wrong, text in (
            (
                {"dtype": "f8", "shape": (2, 2)},
                r"has 48 bytes, an array of \(2, 2\) times float64 has",
            ),
            ({"shape": 47}, r"has 48 bytes, an array of \(47,\) times uint8 has 47"),
            ({"dtype": "S7"}, r"has 48 bytes, an array of \(6,\) times \|S7 has 42"),
            ({"dtype": "f8", "shape": (-2, -3)}, "negative dimensions"),
            ({"dtype": "f8", "shape": (6, *[1] * 70)}, "dimension"),
        ):
            with pytest.raises(ValueError, match=text):
                world.recv_view(tag=4, **wrong)
        with pytest.raises(TypeError, match="plain data of a known size, not of object"):
            world.recv_view(dtype=object)
        try:
            world.recv_view(tag=4, dtype="S7")
        except ValueError:
            assert world.iprobe(tag=4)
        world.send(sent, dest=0, tag=5)
        got = world.recv_view(tag=5, dtype="(2,3)f8", shape=1)
        assert got.tolist() == [sent.tolist()]
        got = world.recv_view(0, 4, 60, "f8", (2, 3))
        assert (got == sent).all()
        assert not got.flags.writeable
        world.send(sent, dest=0)
        assert world[0].recv_view(dtype=float).shape == (6,)
        with pytest.raises(pscompy.Timeout, match="with tag 9"):
            world.recv_view(tag=9, timeout=0, dtype="f8")


def test_a_typed_view_of_what_was_lent():
    with pscompy.World() as world:
        block = world.empty((64, 1024))
        block[:] = 3
        loan = world.isend(block, dest=0, lend=True)
        view = world.recv_view(dtype="f8", shape=block.shape)
        assert view.shape == block.shape
        assert (view == 3).all()
        del view
        loan.wait(60)
