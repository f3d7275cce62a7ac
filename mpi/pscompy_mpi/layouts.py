"""Layouts: where the data of one item of a type is, as the constructors of types compute it.

The data is a tuple of blocks, in the order in which it is sent. A block is a run of bytes, or such
runs at equal distances in up to DIMS dimensions, which the core moves without a copy of ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

DIMS = 4  # PSC_MPI_DIMS of src/library.h

Elements = tuple[tuple[int, int], ...]
"""Basic elements in their order: the bytes of one, and how many of them follow each other."""


class Block(NamedTuple):
    offset: int
    run: int  # bytes
    dims: tuple[tuple[int, int], ...] = ()  # number and distance, the outermost first

    def moved(self, by: int) -> Block:
        return self._replace(offset=self.offset + by)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first byte, and the one behind the last."""
        low, high = self.offset, self.offset + self.run
        for n, stride in self.dims:
            low += min(0, (n - 1) * stride)
            high += max(0, (n - 1) * stride)
        return low, high


class Layout(NamedTuple):
    size: int
    lb: int
    ub: int
    blocks: tuple[Block, ...]
    elements: Elements
    times: int = 1  # how often the elements follow each other
    align: int = 1  # the alignment of the basic type that needs most

    @property
    def extent(self) -> int:
        return self.ub - self.lb

    @property
    def true_bounds(self) -> tuple[int, int]:
        bounds = [block.bounds for block in self.blocks]
        if not bounds:
            return 0, 0
        return min(low for low, _ in bounds), max(high for _, high in bounds)

    @property
    def contiguous(self) -> bool:
        """Whether many items are one run of bytes."""
        if not self.blocks:
            return self.size == self.extent == 0
        first = self.blocks[0]
        alone = len(self.blocks) == 1 and not first.dims and first.offset == 0
        return alone and first.run == self.extent


class Part(NamedTuple):
    """Items of a type, one behind the other."""

    at: int
    n: int
    of: Layout


def basic(size: int, parts: int = 1) -> Layout:
    """The layout of one basic element; of a complex number, whose alignment is that of its parts,
    `parts` is 2."""
    return Layout(size, 0, size, (Block(0, size),), ((size, 1),), 1, min(size // parts, 16))


def joined(parts: Iterable[Part]) -> Layout:
    """Parts that follow each other in this order."""
    used = [it for it in parts if it.n > 0]
    if not used:
        return Layout(0, 0, 0, (), ())
    blocks = [
        block.moved(it.at) for it in used for block in repeated(it.of.blocks, it.n, it.of.extent)
    ]
    elements, times = _elements(used)
    return Layout(
        sum(it.n * it.of.size for it in used),
        min(it.at + it.of.lb + min(0, (it.n - 1) * it.of.extent) for it in used),
        max(it.at + it.of.ub + max(0, (it.n - 1) * it.of.extent) for it in used),
        merged(blocks),
        elements,
        times,
        max(it.of.align for it in used),
    )


def vector(count: int, blocklength: int, stride: int, of: Layout) -> Layout:
    """Parts of equal lengths at equal distances, in bytes."""
    part = joined([Part(0, blocklength, of)])
    if count == 0 or blocklength == 0:
        return joined([])
    return part._replace(
        size=count * part.size,
        lb=part.lb + min(0, (count - 1) * stride),
        ub=part.ub + max(0, (count - 1) * stride),
        blocks=repeated(part.blocks, count, stride),
        times=count * part.times,
    )


def resized(of: Layout, lb: int, extent: int) -> Layout:
    return of._replace(lb=lb, ub=lb + extent)


def padded(of: Layout) -> Layout:
    """The layout of a structure, whose end is aligned as C does it."""
    return of._replace(ub=of.ub + -of.extent % of.align)


def grid(sizes: Sequence[int], owned: Sequence[list[tuple[int, int]]], of: Layout) -> Layout:
    """The items of an array that are in these ranges (begin, length) of each dimension. The last
    dimension varies fastest."""
    made, stride = of, of.extent
    for size, ranges in zip(reversed(sizes), reversed(owned), strict=True):
        inner = made._replace(lb=0, ub=stride)
        made = joined(Part(begin * stride, n, inner) for begin, n in ranges)
        stride *= size
        made = made._replace(lb=0, ub=stride)
    return made


# ---- blocks ----


def repeated(blocks: tuple[Block, ...], n: int, stride: int) -> tuple[Block, ...]:
    """The blocks n times, at this distance."""
    if n == 0 or not blocks:
        return ()
    if n == 1:
        return blocks
    if len(blocks) > 1 or len(blocks[0].dims) == DIMS:
        return merged([it.moved(i * stride) for i in range(n) for it in blocks])
    block = blocks[0]
    if not block.dims and stride == block.run:
        return (block._replace(run=n * block.run),)
    if block.dims and stride == block.dims[0][0] * block.dims[0][1]:
        first = (n * block.dims[0][0], block.dims[0][1])
        return (block._replace(dims=(first, *block.dims[1:])),)
    return (block._replace(dims=((n, stride), *block.dims)),)


def merged(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The same blocks, as few as is easily found."""
    found: list[Block] = []
    for block in blocks:
        last = found[-1] if found else None
        if last and not last.dims and not block.dims and last.offset + last.run == block.offset:
            found[-1] = last._replace(run=last.run + block.run)
        else:
            found.append(block)
    return _as_one(found) or tuple(found)


def _as_one(blocks: list[Block]) -> tuple[Block, ...] | None:
    """Runs of one length at equal distances as one block."""
    if len(blocks) < 2 or any(it.dims or it.run != blocks[0].run for it in blocks):
        return None
    stride = blocks[1].offset - blocks[0].offset
    if any(b.offset - a.offset != stride for a, b in itertools.pairwise(blocks)):
        return None
    return (Block(blocks[0].offset, blocks[0].run, ((len(blocks), stride),)),)


# ---- elements ----


def _elements(parts: list[Part]) -> tuple[Elements, int]:
    if all(it.of.elements == parts[0].of.elements for it in parts):
        return parts[0].of.elements, sum(it.n * it.of.times for it in parts)
    found: list[tuple[int, int]] = []
    for part in parts:
        for size, n in _repeated_elements(part):
            if found and found[-1][0] == size:
                found[-1] = size, found[-1][1] + n
            else:
                found.append((size, n))
    return tuple(found), 1


def _repeated_elements(part: Part) -> Elements:
    """The elements of a part; those of one size are counted, however many there are."""
    n = part.n * part.of.times
    if len(part.of.elements) == 1:
        [(size, each)] = part.of.elements
        return ((size, n * each),)
    return part.of.elements * n
