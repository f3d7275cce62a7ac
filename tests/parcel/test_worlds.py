"""Objects between the ranks of a World."""

from __future__ import annotations

import pytest
from programs import run


@pytest.mark.parametrize("variables", [{"PSP_TCP": "0"}, {"PSP_SHM": "0"}], ids=["shm", "tcp"])
def test_from_anybody(tmp_path, variables):
    """Heads and chunks of several ranks arrive interleaved; each object gets its own."""
    program = """
    with pscompy.World() as world:
        if world.rank:
            for n in range(6):
                field = np.full(10 ** n // 2, 10 * world.rank + n)
                world.send_obj([world.rank, n, field], 0, tag=n)
        else:
            seen = {rank: [] for rank in range(1, world.size)}
            for turn in range(6 * (world.size - 1)):
                if turn % 3 == 2:
                    rank, n, field = world.recv_obj()
                elif turn % 3 == 1:
                    request = world.irecv_obj()
                    rank, n, field = request.wait()
                    assert (request.status.source, request.status.tag) == (rank, n)
                else:
                    status = world.probe_obj()
                    rank, n, field = world.recv_obj(status.source, status.tag)
                assert (field == 10 * rank + n).all() and len(field) == 10 ** n // 2
                seen[rank].append(n)
            print(seen)
    """
    order = list(range(6))
    assert run(4, program, tmp_path, **variables) == [str({1: order, 2: order, 3: order})]


def test_duplicates_keep_objects_apart(tmp_path):
    program = """
    with pscompy.World() as world:
        other = world.dup()
        peer = 1 - world.rank
        if world.rank:
            original = world.isend_obj(["original", np.ones(100_000)], peer)
            other.send_obj(["duplicate", np.ones(100_000)], peer)
            original.wait()
        else:
            print(other.recv_obj()[0], world.recv_obj(peer)[0])
    """
    assert run(2, program, tmp_path) == ["duplicate original"]


def test_to_itself(tmp_path):
    program = """
    with pscompy.World() as world:
        request = world.isend_obj({"field": np.ones(50_000)}, 0)
        print(world.recv_obj()["field"].sum())
        request.wait()
        world.send_obj("short", 0)
        print(world.recv_obj(0, timeout=5))
    """
    assert run(1, program, tmp_path) == ["50000.0", "short"]


def test_ranks_that_are_not_there(tmp_path):
    program = """
    with pscompy.World() as world:
        for call in (lambda: world.send_obj(1, 1), lambda: world.recv_obj(-1)):
            try:
                call()
            except IndexError as error:
                print(error)
    """
    assert run(1, program, tmp_path) == [
        "no rank -1: the ranks are 0 to 0",
        "no rank 1: the ranks are 0 to 0",
    ]
