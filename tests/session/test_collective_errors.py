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


def test_a_result_needs_an_array_of_the_type_of_the_operands():
    with pscompy.World() as world:
        for recvbuf in (np.empty(3, np.int64), np.empty(6, np.float32)):
            for name in ("allreduce", "reduce", "scan", "reduce_scatter"):
                for _ in range(2):  # the second call is prepared without Python, if it can be
                    with pytest.raises(TypeError, match=rf"^{name}: the recvbuf has .*float64$"):
                        getattr(world, name)(np.ones(3), recvbuf)
                    assert getattr(world, name)(np.ones(3), np.empty(3)).tolist() == [1, 1, 1]


def test_buffers_that_overlap_are_refused():
    memory = np.zeros(8)
    with pscompy.World() as world:
        for _ in range(2):
            for name in ("allreduce", "alltoall", "gather", "allgather", "scatter"):
                with pytest.raises(ValueError, match="overlap"):
                    getattr(world, name)(memory[:5], memory[1:6])
            with pytest.raises(ValueError, match="recvbuf of allreduce has 40 bytes"):
                world.allreduce(memory[:4], memory[:5])
            assert world.allreduce(memory, memory) is memory
            assert world.alltoall(memory, memory) is memory


def test_a_large_int_is_sent_to_the_call_that_takes_it():
    with pscompy.World() as world:
        with pytest.raises(OverflowError, match=r"beyond 64 bits: use allreduce_obj$"):
            world.allreduce(1 << 64)
        with pytest.raises(OverflowError, match=r"beyond 64 bits$"):
            world.scan(1 << 64)
