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
        got = world.recv_array("f8", (2, 3), source=0, tag=4, timeout=60)
        assert (got == sent).all()
        assert got.flags.writeable
        world.send(b"12345678", dest=0)
        assert world[0].recv_array("u1", 8).tobytes() == b"12345678"
        with pytest.raises(pscompy.Timeout, match="with tag 9"):
            world.recv_array("u1", 8, tag=9, timeout=0)
