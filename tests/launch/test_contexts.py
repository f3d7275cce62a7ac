"""Communicators whose context numbers are far apart, or differ in few bits, by real jobs."""

from __future__ import annotations

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
    world._job.contexts.take(number)
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
