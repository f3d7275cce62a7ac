"""The rank of `bench.gateways` that sends to every rank of the other module.

gateways_all.py SIZE ROUNDS
"""

from __future__ import annotations

import sys

import pscompy


def main(size: int, rounds: int) -> None:
    with pscompy.World() as world:
        far = [rank for rank, it in enumerate(world.modules) if it != world.module]
        room = {rank: bytearray(size) for rank in far}
        for _ in range(rounds):
            receives = [world.irecv(room[rank], source=rank) for rank in far]
            pscompy.wait_all([world.isend(bytes(size), dest=rank) for rank in far])
            pscompy.wait_all(receives)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
