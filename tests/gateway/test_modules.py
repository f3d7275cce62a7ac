"""What a World knows of modules, and how seldom collective operations cross between them."""

from __future__ import annotations

import json

import pytest
from namespaces import finished

from pscompy.collective import tree

KNOWS = """\
import json, os, pscompy
with pscompy.World() as world:
    half = world.size // 2
    far = [rank for rank in range(world.size) if (rank < half) != (world.rank < half)]
    def crossed():
        return sum(world[rank].stats["sent_messages"] for rank in far)
    world.barrier()
    before = crossed()
    got = bytearray(b"from rank 3" if world.rank == 3 else 11)
    world.broadcast(got, root=3)
    broadcast = crossed() - before
    world.barrier()
    barrier = crossed() - before - broadcast
    part = world.split_by_module()
    part.barrier()
    if part.rank == 0:
        for rank in range(1, part.size):
            part.send(b"to %d" % rank, dest=rank)
    else:
        assert part.recv(source=0) == b"to %d" % part.rank
    world.barrier()
    told = {
        "rank": world.rank,
        "module": world.module,
        "modules": world.modules,
        "part": [part.rank, part.size],
        "got": got.decode(),
        "broadcast": broadcast,
        "barrier": barrier,
    }
    os.write(1, (json.dumps(told) + "\\n").encode())
"""


def test_modules_of_a_world(machine, script):
    machine.start_gateway(1)
    second = machine.ranks(2, 4, script(KNOWS))
    out = finished(machine.ranks(1, 4, script(KNOWS)))[0] + finished(second)[0]
    told = sorted((json.loads(line) for line in out.splitlines()), key=lambda one: one["rank"])
    assert [one["rank"] for one in told] == list(range(8))
    for one in told:
        assert one["module"] == (1 if one["rank"] < 4 else 2)
        assert one["modules"] == [1] * 4 + [2] * 4
        assert one["part"] == [one["rank"] % 4, 4]
        assert one["got"] == "from rank 3"
    assert sum(one["broadcast"] for one in told) == 1
    assert sum(one["barrier"] for one in told) == 2  # up, and down


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("modules", [None, (1, 1, 2, 2), (1, 2, 3, 1)])
def test_every_rank_is_reached_once(size, modules):
    where = None if modules is None else [modules[rank % 4] for rank in range(size)]
    for root in range(size):
        branches = {rank: tree(rank, size, root, where) for rank in range(size)}
        assert branches[root][0] is None
        reached = [root]
        for rank in reached:
            for child in branches[rank][1]:
                assert branches[child][0] == rank
                reached.append(child)
        assert sorted(reached) == list(range(size))
        if where is not None:
            crossings = sum(
                where[rank] != where[parent]
                for rank, (parent, _) in branches.items()
                if parent is not None
            )
            assert crossings == len(set(where)) - 1
