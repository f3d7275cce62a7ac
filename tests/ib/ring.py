"""Laps of messages of all sizes around all ranks; each tells where it is, and how it reached the
next one."""

import socket

import numpy as np

import pscompy

LAPS, SIZES = 3, (1, 100, 5000, 1 << 18)

with pscompy.World() as world:
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for size in SIZES:
        numbers = np.zeros(size)
        for lap in range(LAPS):
            if world.rank == 0:
                world.send(np.full(size, float(lap)), dest=right)
                world.recv(numbers, source=left)
                assert (numbers == lap + world.size - 1).all()
            else:
                world.recv(numbers, source=left)
                world.send(numbers + 1, dest=right)
    here, over = socket.gethostname(), world[right].transport
    print(f"rank {world.rank} on {here}: to rank {right} over {over}", flush=True)
