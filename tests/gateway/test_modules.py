"""The modules of a World, and how rarely collective operations send messages between modules."""

from __future__ import annotations

import json
import os

from namespaces import TIMEOUT, finished

import pscompy


def knows_its_module():
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
        again = part.split_by_module().dup()
        for here in (part, again):
            if here.rank == 0:
                for rank in range(1, here.size):
                    here.send(b"to %d" % rank, dest=rank)
                seen = sorted(here.recv_status(tag=7)[1].source for _ in range(1, here.size))
                assert seen == list(range(1, here.size))
                assert sorted(here.recv_obj() for _ in range(1, here.size)) == seen
                assert here.probe(source=1, tag=8).source == 1
            else:
                assert here.recv(source=0) == b"to %d" % here.rank
                here.send(b"", dest=0, tag=7)
                here.send_obj(here.rank, dest=0)
                if here.rank == 1:
                    here.send(b"", dest=0, tag=8)
        if part.rank == 0:
            part.recv(source=1, tag=8)
            again.recv(source=1, tag=8)
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
        os.write(1, (json.dumps(told) + "\n").encode())


def test_modules_of_a_world(machine, script):
    machine.start_gateway(1)
    second = machine.ranks(2, 4, script(knows_its_module))
    out = finished(machine.ranks(1, 4, script(knows_its_module)))[0] + finished(second)[0]
    told = sorted((json.loads(line) for line in out.splitlines()), key=lambda one: one["rank"])
    assert [one["rank"] for one in told] == list(range(8))
    for one in told:
        assert one["module"] == (1 if one["rank"] < 4 else 2)
        assert one["modules"] == [1] * 4 + [2] * 4
        assert one["part"] == [one["rank"] % 4, 4]
        assert one["got"] == "from rank 3"
    assert sum(one["broadcast"] for one in told) == 1
    assert sum(one["barrier"] for one in told) == 2  # messages: one up, one down


def passes_on_in_its_module():
    rank = int(os.environ["PMI_RANK"])
    with pscompy.World(config={"MSA_MODULE_ID": 5 + rank % 2}) as world:
        part = world.split_by_module()
        left = part.rank - 1 if part.rank else part.size - 1
        request = part.isend(b"%d" % world.rank, dest=(part.rank + 1) % part.size)
        got, status = part.recv_status()
        assert (status.source, int(got) % 2) == (left, rank % 2)
        request.wait()
        world.barrier()
        os.write(1, b"%d %d %s\n" % (rank, part.size, str(world.modules).encode()))


def test_ranks_of_one_launcher_in_two_modules(run, script):
    lines = run.lines(4, script(passes_on_in_its_module))
    assert lines == [f"{rank} 2 (5, 6, 5, 6)" for rank in range(4)]


def test_joined_ranks_of_one_launcher_are_one_module(machine, script):
    machine.start_gateway(1)
    process = machine.ranks(1, 2, script(passes_on_in_its_module), PSP_JOIN="test:1")
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode != 0
    assert "each module that is joined has a launcher of its own" in err


def calls_collectives():
    from tests.launch.collective_ranks import run

    run(seed=30, batches=25)


def test_collectives_in_two_modules(machine, script):
    machine.start_gateway(1)
    second = machine.ranks(2, 2, script(calls_collectives))
    assert finished(machine.ranks(1, 3, script(calls_collectives)))[0] == 3 * "ok\n"
    assert finished(second)[0] == 2 * "ok\n"
