"""Layouts of types, compared with lists of all their bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from pscompy_mpi import layouts
from pscompy_mpi.layouts import Block, Layout, Part


class Listed(NamedTuple):
    """A type as MPI defines it: the offsets of its bytes in their order, and its bounds."""

    bytes: list[int]
    lb: int
    ub: int

    @property
    def extent(self) -> int:
        return self.ub - self.lb


def listed(layout: Layout) -> list[int]:
    return [at for block in layout.blocks for at in bytes_of(block, block.dims)]


def bytes_of(block: Block, dims: tuple[tuple[int, int], ...]) -> Iterator[int]:
    if not dims:
        yield from range(block.offset, block.offset + block.run)
        return
    n, stride = dims[0]
    for i in range(n):
        yield from bytes_of(block.moved(i * stride), dims[1:])


def joined(parts: list[tuple[int, int, Listed]]) -> Listed:
    found: list[int] = []
    bounds: list[int] = []
    for at, n, of in parts:
        for i in range(n):
            begin = at + i * of.extent
            found += [begin + it for it in of.bytes]
            bounds += [begin + of.lb, begin + of.ub]
    return Listed(found, min(bounds, default=0), max(bounds, default=0))


def derived(rng: random.Random, depth: int) -> tuple[Layout, Listed]:
    """A type that constructors have made, in both forms."""
    if depth == 0:
        size = rng.choice([1, 2, 4, 8])
        return layouts.basic(size), Listed(list(range(size)), 0, size)
    layout, plain = derived(rng, depth - 1)
    kind = rng.choice(["contiguous", "vector", "indexed", "struct", "resized"])
    if kind == "vector":
        count, length, stride = rng.randrange(4), rng.randrange(4), rng.randrange(-20, 40)
        made = layouts.vector(count, length, stride, layout)
        return made, joined([(i * stride, length, plain) for i in range(count)])
    if kind == "resized":
        lb, extent = rng.randrange(-5, 5), rng.randrange(1, 50)
        return layouts.resized(layout, lb, extent), plain._replace(lb=lb, ub=lb + extent)
    parts = [(layout, plain)]
    if kind == "struct":
        parts.append(derived(rng, depth - 1))
    chosen = [
        (rng.randrange(-30, 60), rng.randrange(4), *rng.choice(parts))
        for _ in range(1 if kind == "contiguous" else rng.randrange(5))
    ]
    made = layouts.joined(Part(at, n, it) for at, n, it, _ in chosen)
    return made, joined([(at, n, it) for at, n, _, it in chosen])


@pytest.mark.parametrize("seed", range(300))
def test_all_bytes_are_where_mpi_says(seed: int) -> None:
    layout, plain = derived(random.Random(seed), 1 + seed % 3)
    assert listed(layout) == plain.bytes
    assert layout.size == len(plain.bytes)
    assert (layout.lb, layout.ub) == (plain.lb, plain.ub)
    true = (min(plain.bytes), max(plain.bytes) + 1) if plain.bytes else (0, 0)
    assert layout.true_bounds == true
    assert sum(size * n for size, n in layout.elements) * layout.times == layout.size


def test_a_column_and_a_subarray_are_one_block() -> None:
    double = layouts.basic(8)
    assert layouts.vector(1000, 1, 8000, double).blocks == (Block(0, 8, ((1000, 8000),)),)
    part = layouts.grid([10, 20, 30], [[(1, 2)], [(3, 4)], [(5, 6)]], double)
    assert part.blocks == (Block(8 * (600 + 90 + 5), 48, ((2, 4800), (4, 240))),)
    assert (part.lb, part.ub) == (0, 8 * 6000)


def test_what_is_contiguous_is_one_run() -> None:
    double = layouts.basic(8)
    assert layouts.joined([Part(0, 1000, double)]).contiguous
    assert layouts.vector(10, 3, 24, double).contiguous
    assert not layouts.vector(10, 3, 32, double).contiguous
    assert not layouts.resized(double, 0, 16).contiguous
