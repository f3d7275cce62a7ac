"""Every rank sends messages of all sizes to every rank of the other module and checks those that
arrive: the content by a checksum, the order by its own count. Before every EVERY-th round the
ranks wait at the gate, if there is one; after such a round rank 0 prints its number.

soak.py ROUNDS EVERY [GATE]
"""

import os
import random
import sys
import zlib

import gate

import pscompy

SIZES = (0, 8, 100, 3000, 40_000, 70_000, 300_000, 2_000_000)


def message(seed: int) -> bytes:
    chance = random.Random(seed)
    return chance.randbytes(chance.choice(SIZES))


def seed_of(sender: int, receiver: int, number: int) -> int:
    return (sender * 1000 + receiver) * 1_000_000 + number


rounds, every = int(sys.argv[1]), int(sys.argv[2])
with pscompy.World() as world:
    half = world.size // 2
    others = [rank for rank in range(world.size) if (rank < half) != (world.rank < half)]
    for number in range(rounds):
        if number % every == 0:
            gate.wait(world, *sys.argv[3:])
        receives = [world.irecv(source=other, tag=1) for other in others]
        sends = [
            world.isend(message(seed_of(world.rank, other, number)), dest=other, tag=1)
            for other in others
        ]
        for other, receive in zip(others, receives, strict=True):
            got, wanted = receive.wait(), message(seed_of(other, world.rank, number))
            assert zlib.crc32(got) == zlib.crc32(wanted), (other, number, len(got), len(wanted))
        pscompy.wait_all(sends)
        if world.rank == 0 and number % every == 0:
            os.write(1, b"%d\n" % number)
    assert all(world[other].transport == "gateway" for other in others)
