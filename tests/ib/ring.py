"""Messages of all sizes go around all ranks for several laps. Each rank then reports its host
and the transport to the next rank. Rank 0 prints all reports, because the output of several
ranks may be mixed up.
"""

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
    told = f"rank {world.rank} on {here}: to rank {right} over {over}"
    if world.rank == 0:
        print("\n".join([told, *(world.recv_obj(source=r) for r in range(1, world.size))]))
    else:
        world.send_obj(told, dest=0)
