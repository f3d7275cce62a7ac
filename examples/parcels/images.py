"""An image pipeline over all ranks: pscompy run -n 4 images.py [COUNT].

Rank 0 makes images and distributes them. The other ranks blur them, find edges and count the
discs. Whole images travel in both directions, copied only where the network requires it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import pscompy

SIDE = 512
DISC = 24  # radius
Image = np.ndarray[Any, np.dtype[np.float32]]


def scene(number: int) -> Image:
    """An image of number % 7 + 1 discs on a noisy ground."""
    dice = np.random.default_rng(number)
    image = dice.normal(0, 0.05, (SIDE, SIDE)).astype(np.float32)
    y, x = np.ogrid[:SIDE, :SIDE]
    for place in dice.permutation(16)[: number % 7 + 1]:
        row, column = divmod(int(place), 4)
        centre_y, centre_x = 64 + 128 * row, 64 + 128 * column
        image[(y - centre_y) ** 2 + (x - centre_x) ** 2 < DISC**2] += 1
    return image


@pscompy.action
def blur(image: Image, times: int = 3) -> Image:
    for _ in range(times):
        for axis in (0, 1):
            image = (np.roll(image, 1, axis) + image + np.roll(image, -1, axis)) / 3
    return image


@pscompy.action
def edges(image: Image) -> Image:
    dy, dx = np.gradient(image)
    return np.hypot(dy, dx)


@pscompy.action
def count(image: Image, edge: Image) -> int:
    """Count discs by their area, after a check that `edge` belongs to this image."""
    inside = image > 0.5
    if edge[inside].max() <= edge[~inside].mean():
        raise ValueError("these edges are of another image")
    return round(float(inside.sum()) / (np.pi * DISC**2))


def main(total: int) -> None:
    with pscompy.World() as world, pscompy.Executor(world) as executor:
        if executor is None:
            return
        blurred = list(executor.map(blur, map(scene, range(total))))
        rims = executor.map(edges, blurred)
        counts = list(executor.map(count, blurred, rims))
        good = sum(found == number % 7 + 1 for number, found in enumerate(counts))
        print(f"{good} of {total} images have the right number of discs")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
