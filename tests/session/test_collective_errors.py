"""What the collective calls refuse names the call that takes it, where there is one."""

from __future__ import annotations

import numpy as np
import pytest

import pscompy

WITH_OBJECTS = ("reduce", "allreduce", "gather", "allgather", "alltoall")
ARRAYS_ONLY = ("scan", "exscan", "reduce_scatter")


@pytest.mark.parametrize("name", WITH_OBJECTS + ARRAYS_ONLY)
@pytest.mark.parametrize("value", [[1], "text", np.array([None])], ids=["list", "str", "object"])
def test_objects_are_sent_to_the_call_that_takes_them(name, value):
    with pscompy.World() as world:
        with pytest.raises(TypeError, match=f"^{name} ") as caught:
            getattr(world, name)(value)
        assert hasattr(world, f"{name}_obj") == (name in WITH_OBJECTS)
        assert str(caught.value).endswith(f": use {name}_obj") == (name in WITH_OBJECTS)


def test_a_large_int_is_sent_to_the_call_that_takes_it():
    with pscompy.World() as world:
        with pytest.raises(OverflowError, match=r"beyond 64 bits: use allreduce_obj$"):
            world.allreduce(1 << 64)
        with pytest.raises(OverflowError, match=r"beyond 64 bits$"):
            world.scan(1 << 64)
