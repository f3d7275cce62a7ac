"""Two ranks that send and receive without a pause in which the other rank could catch up, in one
world after the other: each argument has the configuration of a world, in JSON.
"""

from __future__ import annotations

import json
import sys

import pscompy
from pscompy import wait_all

AT_ONCE, ROUNDS = 64, 47
DATA = bytes(9000)  # several packets
SECONDS = 20.0  # time limit of a round; many times the usual duration

for number, config in enumerate(sys.argv[1:]):
    with pscompy.World(config=json.loads(config)) as world:
        peer = 1 - world.rank
        for _ in range(ROUNDS):
            receives = [world.irecv(source=peer) for _ in range(AT_ONCE)]
            sends = [world.isend(DATA, dest=peer) for _ in range(AT_ONCE)]
            wait_all(receives + sends, timeout=SECONDS)
            assert all(it.result() == DATA for it in receives)
        print(f"world {number}: all is there over {world[peer].transport}", flush=True)
