"""Arrays that the ranks of a node share."""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path

import numpy as np
import pytest

import pscompy
from pscompy import capi

NAME = "pscompy shared"


def mapped() -> bool:
    return NAME in Path("/proc/self/maps").read_text()


def opened() -> int:
    links = (Path("/proc/self/fd") / it for it in os.listdir("/proc/self/fd"))
    return sum(it.is_symlink() and NAME in os.readlink(it) for it in links)


def fills_rows():
    with pscompy.World() as world:
        node = world.split_by_node()
        table = node.shared((node.size, 1000), np.int32)
        assert table.shape == (node.size, 1000)
        assert table.dtype == np.int32
        assert not table.any()
        node.barrier()
        table[node.rank] = node.rank + 1
        node.barrier()
        assert (table == np.arange(1, node.size + 1)[:, None]).all()
        assert mapped()
        row = table[0]
        del table
        gc.collect()
        assert mapped()  # a view keeps it
        assert row[0] == 1
        del row
        gc.collect()
        assert not mapped()
        assert opened() == 0
        print("shared")


def test_all_ranks_see_what_each_has_written(run, script):
    assert run.lines(4, script(fills_rows)) == ["shared"] * 4


def gives_odd_shapes():
    with pscompy.World() as world:
        mine = (3,) if world.rank == 1 else (4,)
        with pytest.raises(ValueError, match="rank 1 has another shape or type than rank 0"):
            world.shared(mine)
        with pytest.raises(ValueError, match="rank 1 has another shape or type than rank 0"):
            world.shared(4, np.float32 if world.rank == 1 else float)
        world.session._identity = world.session._identity._replace(host=f"host {world.rank}")
        with pytest.raises(ValueError, match="rank 1 is on another node than rank 0"):
            world.shared(4)
        print("refused")


def test_different_shapes_and_nodes_are_refused_on_all_ranks(run, script):
    assert run.lines(3, script(gives_odd_shapes)) == ["refused"] * 3


def asks_for_too_much():
    with pscompy.World() as world:
        with pytest.raises(OSError, match="rank 0 cannot have the memory"):
            world.shared(1 << 60, np.uint8)
        assert opened() == 0
        assert world.shared(0).size == 0
        assert world.shared((2, 0, 3)).shape == (2, 0, 3)
        assert world.shared(()).shape == ()
        print("refused")


def test_more_memory_than_there_is_is_an_error_on_all_ranks(run, script):
    assert run.lines(3, script(asks_for_too_much)) == ["refused"] * 3


def shares_a_file():
    with pscompy.World() as world:
        file = capi.shared_file(world, 3)
        assert opened() == 1
        assert os.write(file, b"abc"[world.rank :]) == 3 - world.rank  # at a place of its own
        assert os.fstat(file).st_size == 3
        assert len(set(world.allgather_obj(os.fstat(file).st_ino))) == 1
        os.close(file)
        if world.rank == 1:
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        with pytest.raises(OSError, match=r"rank 1 .*Too many open files"):
            capi.shared_file(world, 3)
        if world.rank == 1:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert opened() == 0
        print("shared")


def test_all_ranks_open_one_file(run, script):
    assert run.lines(3, script(shares_a_file)) == ["shared"] * 3


def test_what_cannot_be_shared_is_refused():
    with pscompy.World() as world:
        with pytest.raises(TypeError, match="Python's objects"):
            world.shared(3, object)
        with pytest.raises(ValueError, match="negative length"):
            world.shared(-1)
        with pytest.raises(TypeError):
            world.shared(1.5)
        array = world.shared((2, 3))
        array[1] = 7
        assert array.sum() == 21


def survives_a_kill():
    with pscompy.World() as world:
        array = world.shared(3)
        world.barrier()
        if world.rank == 0:
            array[:] = 5
            os.kill(os.getpid(), 9)
        with pytest.raises(pscompy.PeerLost):
            world.barrier()
        assert array.tolist() == [5, 5, 5]
        print("kept")


def test_the_others_keep_the_array_when_its_first_rank_is_killed(run, script):
    done = run("--keep-going", "-n", 3, script(survives_a_kill))
    assert done.stdout.split() == ["kept"] * 2
