"""Conjugate gradients: solves A x = b, each rank with some rows of A.

    pscompy run -n 4 examples/collectives/gradients.py

In every step all ranks get the whole vector by allgather, because each row of A
needs it, and the dot products by allreduce. Every rank gets the same bits from
allreduce, so all ranks stop in the same step.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from pscompy import World

TOLERANCE = 1e-10  # of the residual, relative to b


def main() -> int:
    size = parse_arguments().size
    with World() as world:
        counts = [len(rows_of(rank, world.size, size)) for rank in range(world.size)]
        rows, right = system(size, rows_of(world.rank, world.size, size))
        part, steps = solve(world, rows, right, counts)
        found = world.gather(part, root=0, counts=counts)
    return 0 if found is None else check(found, size, steps)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Solve A x = b by conjugate gradients.")
    parser.add_argument("--size", type=int, default=1000, help="rows of A [1000]")
    return parser.parse_args()


def rows_of(rank: int, ranks: int, size: int) -> range:
    return range(rank * size // ranks, (rank + 1) * size // ranks)


def system(size: int, which: range) -> tuple[np.ndarray, np.ndarray]:
    """These rows of A, which is symmetric and positive definite, and of b."""
    row, column = np.array(which)[:, np.newaxis], np.arange(size)
    matrix = 1.0 / (1.0 + np.abs(row - column)) + 4.0 * (row == column)
    return matrix, np.cos(np.array(which))


def solve(
    world: World, rows: np.ndarray, right: np.ndarray, counts: list[int]
) -> tuple[np.ndarray, int]:
    """Returns this rank's part of x, and the number of steps."""
    part, residual = np.zeros_like(right), right.copy()
    direction, whole = right.copy(), np.empty(rows.shape[1])
    square = world.allreduce(residual @ residual)
    enough = TOLERANCE**2 * square
    steps, told = 0, time.monotonic()
    while square > enough:
        world.allgather(direction, whole, counts=counts)
        product = rows @ whole
        length = square / world.allreduce(direction @ product)
        part += length * direction
        residual -= length * product
        before, square = square, world.allreduce(residual @ residual)
        direction = residual + square / before * direction
        steps += 1
        if world.rank == 0 and time.monotonic() - told > 1:
            told = time.monotonic()
            print(f"step {steps}: residual {square**0.5:.1e}", file=sys.stderr)
    return part, steps


def check(found: np.ndarray, size: int, steps: int) -> int:
    """Compare with the serial result; returns the exit code."""
    matrix, right = system(size, range(size))
    difference = float(np.abs(found - np.linalg.solve(matrix, right)).max())
    same = difference < 1e-8
    verdict = "matches" if same else "does NOT match"
    print(f"{verdict} the serial result after {steps} steps (largest difference {difference:.1e})")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
