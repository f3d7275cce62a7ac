"""k-means: puts points into groups, each rank with some of the points.

    pscompy run -n 4 examples/collectives/kmeans.py

Rank 0 chooses the first centres, and bcast brings them to all ranks. In every
step a rank sums up its own points of each group, and allreduce adds the sums
and counts of all ranks, which give the next centres.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np

from pscompy import World

GROUPS, DIMENSIONS = 8, 3
STEPS_MAX = 300


def main() -> int:
    count = parse_arguments().points
    with World() as world:
        centres = np.empty((GROUPS, DIMENSIONS))
        if world.rank == 0:
            centres[:] = points(count)[:GROUPS]
        world.bcast(centres, root=0)
        mine = points(count)[world.rank :: world.size]
        centres, steps = cluster(mine, centres, world.allreduce)
        if world.rank != 0:
            return 0
    return check(centres, steps, points(count))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Group points by k-means.")
    parser.add_argument("--points", type=int, default=20_000, help="number of points [20000]")
    options = parser.parse_args()
    if options.points < GROUPS:
        parser.error(f"--points: {GROUPS} groups need {GROUPS} points at least")
    return options


def points(count: int) -> np.ndarray:
    """The points of all ranks, scattered around the middle of each group."""
    random = np.random.default_rng(35)
    middles = random.uniform(-10, 10, (GROUPS, DIMENSIONS))
    return middles[np.arange(count) % GROUPS] + random.standard_normal((count, DIMENSIONS))


def cluster(
    data: np.ndarray, centres: np.ndarray, add: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, int]:
    """The centres, and the number of steps. `add` returns the sum over all ranks."""
    steps, before = 0, np.full_like(centres, np.inf)
    while steps < STEPS_MAX and not np.allclose(before, centres, atol=1e-12):
        before, centres = centres, moved(centres, add(sums(data, centres)))
        steps += 1
    return centres, steps


def sums(data: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """For each group the sum of its points, and in the last column their number."""
    squares = ((data[:, np.newaxis] - centres) ** 2).sum(axis=2)
    members = np.eye(GROUPS)[squares.argmin(axis=1)]
    return np.column_stack([members.T @ data, members.sum(axis=0)])


def moved(centres: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The next centres; that of a group without points stays where it is."""
    counts = total[:, DIMENSIONS:]
    return np.where(counts > 0, total[:, :DIMENSIONS] / np.maximum(counts, 1), centres)


def check(found: np.ndarray, steps: int, data: np.ndarray) -> int:
    """Compare with the serial result; returns the exit code."""
    serial, _ = cluster(data, data[:GROUPS], lambda own: own)
    difference = float(np.abs(found - serial).max())
    same = difference < 1e-9
    verdict = "matches" if same else "does NOT match"
    print(f"{verdict} the serial result after {steps} steps (largest difference {difference:.1e})")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
