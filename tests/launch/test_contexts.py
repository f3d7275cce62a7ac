"""Communicators whose context numbers differ in few bits, and those that are closed, by real
jobs."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

import pscompy

# Each over shm with receives that the sender sees, over tcp, and over a fabric that matches.
TRANSPORTS = {
    "shm": {"PSP_TCP": "0", "PSP_TUPLEQ": "1"},
    "tcp": {"PSP_SHM": "0", "PSP_PORTALS": "0"},
    "portals": {"PSP_SHM": "0", "PSP_TCP": "0", "PSP_PORTALS": "1"},
}
SIZES = (0, 8, 1000, 20_000, 300_000)


def numbered(world, number):
    """Make a duplicate with this context number."""
    world._job.contexts._next = number
    made = world.dup()
    assert made._context.number == number
    return made


def swap(comms, nbytes):
    """Exchange a message of each communicator with the other rank, which sends them in the opposite
    order, into receives that wait, and into receives that are posted later."""
    other = 1 - comms[0].rank
    payloads = [bytes([place]) * nbytes for place in range(len(comms))]
    for early in (True, False):
        buffers = [bytearray(nbytes) for _ in comms]
        receives = [c.irecv(b, other, 1) for c, b in zip(comms, buffers, strict=True) if early]
        comms[0].barrier()
        sends = [c.isend(p, other, 1) for c, p in zip(comms[::-1], payloads[::-1], strict=True)]
        if not early:
            receives = [c.irecv(b, other, 1) for c, b in zip(comms, buffers, strict=True)]
        pscompy.wait_all([*receives, *sends], timeout=60)
        assert buffers == payloads
    objects = [comm.isend_obj(place, other) for place, comm in enumerate(comms)]
    assert [comm.recv_obj(other) for comm in comms[::-1]] == [*range(len(comms))][::-1]
    pscompy.wait_all(objects, timeout=60)


def numbers_alike(transport):
    with pscompy.World() as world:
        first = world._context.number + 2
        comms = [numbered(world, first + bit) for bit in (0, 1 << 14, 1 << 16, 1 << 29)]
        for nbytes in SIZES:
            swap(comms, nbytes)
        stats = world[1 - world.rank].stats
        used = {"shm": "tuple_placed", "tcp": "sent_messages", "portals": "tag_matched"}
        print(world[1 - world.rank].explain().choice, stats[used[transport]] > 0)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_numbers_that_differ_in_one_high_bit(run, script, transport):
    lines = run.lines(2, script(numbers_alike, transport), **TRANSPORTS[transport])
    assert lines == [f"{transport} True"] * 2


# ---- closing ----


def refused(call, *args):
    with pytest.raises(pscompy.Closed, match="was closed"):
        call(*args)


def closes():
    with pscompy.World() as world:
        other = 1 - world.rank
        first, second = world.dup(), world.dup()
        link = first[other]
        waiting = [first.irecv(source=other), first.irecv(), first.irecv_obj(other), link.irecv()]
        world.barrier()
        first.close()
        first.close()
        for request in waiting:
            refused(request.wait, 60)
        for use in (first.isend, first.send_obj, first.isend_obj):
            refused(use, b"late", other)
        for use in (link.send, link.send_obj, link.isend):
            refused(use, b"late")
        for use in (first.irecv, first.iprobe, first.recv_obj, link.irecv, link.recv_obj):
            refused(use)
        for use in (first.barrier, first.dup, first.ibarrier):
            refused(use)
        second.send_obj(world.rank, other)
        assert second.recv_obj(other) == other
        assert world.sendrecv(b"alive", other) == b"alive"
        print("ok")


def test_a_closed_communicator_is_of_no_use(run, script):
    assert run.lines(2, script(closes)) == ["ok"] * 2


def closes_on_one_side():
    """Rank 1 has closed what rank 0 still sends to, before the messages arrive, or after."""
    with pscompy.World() as world:
        for early in (False, True):
            with world.dup() as made:
                if world.rank == 1 and early:
                    made.close()
                world.barrier()
                if world.rank == 0:
                    made.send(b"short", 1)
                    long = made.isend(bytes(1 << 20), 1)
                    thing = made.isend_obj([bytes(1 << 20)], 1)
                world.barrier()
            if world.rank == 0:
                with pytest.raises(pscompy.Closed):
                    long.wait(60)
                with pytest.raises(pscompy.Closed):
                    thing.wait(60)
        world.barrier()
        print(world.rank, world.stats["unexpected_bytes"])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_is_sent_to_a_closed_communicator_is_dropped(run, script, transport):
    lines = run.lines(2, script(closes_on_one_side), **TRANSPORTS[transport])
    assert lines == ["0 0", "1 0"]


def leaves_async():
    async def main():
        async with pscompy.World() as world:
            async with world.dup() as made:
                await made.ibarrier()
            refused(made.ibarrier)
            print("ok")

    asyncio.run(main())


def test_leaving_async_with(run, script):
    assert run.lines(2, script(leaves_async)) == ["ok"] * 2


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 << 10


def makes_many(rounds):
    """Ranks 0 and 2 are a module, whose communicator has other ranks than the World."""
    with pscompy.World({"MSA_MODULE_ID": int(os.environ["PMI_RANK"]) % 2}) as world:
        kept = world.stats
        for _ in range(2):
            before = resident()
            for _ in range(rounds):
                with world.dup() as all_ranks, world.split_by_module() as few:
                    for comm in (all_ranks, few):
                        to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
                        send = comm.isend(b"x" * 8, to, 1)
                        assert comm.recv_status(tag=1)[1].source == source
                        send.wait()
                        comm.isend_obj(comm.rank, to)
        world.barrier()
        grown = {name: n - kept[name] for name, n in world.stats.items()}
        print(resident() - before < 1 << 20, grown["match_queues"] < 20)


def test_closed_communicators_leave_nothing(run, script):
    assert run.lines(3, script(makes_many, 1000)) == ["True True"] * 3
