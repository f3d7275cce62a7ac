"""The Fourier transform of an image, each rank with some of its rows.

    pscompy run -n 4 examples/collectives/fourier.py

A transform in two dimensions is one of all rows, then one of all columns.
Between them alltoall turns rows into columns: each rank cuts its rows into
blocks of columns, one for each rank. The same way back restores the rows.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from pscompy import World


def main() -> int:
    size = parse_arguments().size
    with World() as world:
        if size % world.size:
            raise SystemExit(f"{size} rows cannot be shared by {world.size} ranks")
        height = size // world.size
        rows = image(size)[world.rank * height : (world.rank + 1) * height]
        columns = turned(world, np.fft.fft(rows))
        part = turned(world, np.fft.fft(columns))
        found = world.gather(part, root=0)
    return 0 if found is None else check(found.reshape(size, size), size)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The Fourier transform of an image.")
    parser.add_argument("--size", type=int, default=480, help="rows and columns [480]")
    return parser.parse_args()


def image(size: int) -> np.ndarray:
    return np.random.default_rng(35).standard_normal((size, size))


def turned(world: World, rows: np.ndarray) -> np.ndarray:
    """This rank's rows of the transposed matrix."""
    height, width = rows.shape
    blocks = rows.T.reshape(world.size, width // world.size, height)  # of columns, for each rank
    return np.concatenate(world.alltoall(blocks), axis=1)  # the blocks of each rank's rows


def check(found: np.ndarray, size: int) -> int:
    """Compare with the serial result; returns the exit code."""
    difference = float(np.abs(found - np.fft.fft2(image(size))).max())
    same = difference < 1e-9 * size
    verdict = "matches" if same else "does NOT match"
    print(f"{verdict} the serial result (largest difference {difference:.1e})")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
