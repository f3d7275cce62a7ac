"""How heat spreads over a plate, computed by several ranks.

    pscompy run -n 4 examples/heat/heat.py

The plate is cut into strips of rows, one per rank. In every step a rank needs
the rows next to its strip, the halo, from the ranks above and below. Rank 0
collects the result, compares it with the result of a single process, and draws
two pictures: the field, and the connections between the ranks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import pictures

from pscompy import World, wait_all

HALO, RESULT, CONNECTIONS = range(3)  # tags
CONDUCTIVITY = 0.2  # share of the difference to the neighbours, per step


def main() -> int:
    options = parse_arguments()
    with World() as world:
        if world.size > options.size:
            raise SystemExit(f"{options.size} rows are not enough for {world.size} ranks")
        strip = diffuse(world, options.size, options.steps)
        used = connections(world)
        if world.rank != 0:
            world.send(strip, dest=0, tag=RESULT)
            world.send(json.dumps(used).encode(), dest=0, tag=CONNECTIONS)
            return 0
        field, links = collect(world, strip, used, options.size)
    return report(field, links, options)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How heat spreads over a plate.")
    parser.add_argument("--size", type=int, default=256, help="rows and columns [256]")
    parser.add_argument("--steps", type=int, default=1000, help="steps of time [1000]")
    parser.add_argument(
        "--out", type=Path, default=Path("heat-out"), help="folder for the pictures [heat-out]"
    )
    return parser.parse_args()


def rows_of(rank: int, ranks: int, size: int) -> tuple[int, int]:
    """The first row of a rank's strip, and the first row after it."""
    return rank * size // ranks, (rank + 1) * size // ranks


def plate(size: int, first: int, end: int) -> np.ndarray:
    """Rows `first` to `end` of the plate at the start, in degrees."""
    rows = np.arange(first, end)[:, np.newaxis] / size
    columns = np.arange(size) / size
    field = np.zeros((end - first, size))
    field[(rows - 0.35) ** 2 + (columns - 0.6) ** 2 < 0.03] = 100.0  # a hot disc
    field[:, 0] = 60.0  # a warm left edge, whose temperature is fixed
    return field


def step(old: np.ndarray, new: np.ndarray) -> None:
    """One step of time for all cells except those at the edge of the arrays."""
    inner = old[1:-1, 1:-1]
    neighbours = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
    new[1:-1, 1:-1] = inner + CONDUCTIVITY * (neighbours - 4 * inner)


def diffuse(world: World, size: int, steps: int) -> np.ndarray:
    """Compute all steps; returns this rank's strip."""
    first, end = rows_of(world.rank, world.size, size)
    # Each side of the strip has one more row: the neighbour's row, or at the
    # plate's own edge a row that is never computed and stays cold.
    old = np.zeros((end - first + 2, size))
    old[1:-1] = plate(size, first, end)
    new = old.copy()
    told = time.monotonic()
    for number in range(steps):
        exchange_halo(world, old)
        step(old, new)
        old, new = new, old
        if world.rank == 0 and time.monotonic() - told > 1:
            told = time.monotonic()
            print(f"step {number + 1} of {steps}", file=sys.stderr)
    return old[1:-1]


def exchange_halo(world: World, field: np.ndarray) -> None:
    """Send the strip's outer rows to the neighbours and receive theirs."""
    above, below = world.rank - 1, world.rank + 1
    requests = []
    if above >= 0:
        requests.append(world.irecv(field[0], source=above, tag=HALO))
        requests.append(world.isend(field[1], dest=above, tag=HALO))
    if below < world.size:
        requests.append(world.irecv(field[-1], source=below, tag=HALO))
        requests.append(world.isend(field[-2], dest=below, tag=HALO))
    wait_all(requests)


def connections(world: World) -> dict[int, str]:
    """The ranks that this rank is connected to, with the transport of each connection."""
    transports = {rank: world[rank].transport for rank in range(world.size)}
    return {rank: name for rank, name in transports.items() if name}


def collect(
    world: World, strip: np.ndarray, used: dict[int, str], size: int
) -> tuple[np.ndarray, dict[tuple[int, int], str]]:
    """The whole field, and the transport between each pair of connected ranks."""
    field = np.empty((size, size))
    field[: len(strip)] = strip
    links = {(0, peer): transport for peer, transport in used.items()}
    for rank in range(1, world.size):
        first, end = rows_of(rank, world.size, size)
        world.recv(field[first:end], source=rank, tag=RESULT)
        theirs = json.loads(world.recv(source=rank, tag=CONNECTIONS))
        links |= {(rank, int(peer)): transport for peer, transport in theirs.items()}
    return field, links


def report(
    field: np.ndarray, links: dict[tuple[int, int], str], options: argparse.Namespace
) -> int:
    """Compare with the serial result, draw, and return the exit code."""
    difference = float(np.abs(field - serial(options.size, options.steps)).max())
    same = difference < 1e-9
    verdict = "matches" if same else "does NOT match"
    print(f"{verdict} the serial result (largest difference {difference:.1e} degrees)")
    for path in pictures.draw(field, links, options.out):
        print(f"wrote {path}")
    return 0 if same else 1


def serial(size: int, steps: int) -> np.ndarray:
    """The result that one process computes without other ranks."""
    old = np.zeros((size + 2, size))
    old[1:-1] = plate(size, 0, size)
    new = old.copy()
    for _ in range(steps):
        step(old, new)
        old, new = new, old
    return old[1:-1]


if __name__ == "__main__":
    sys.exit(main())
