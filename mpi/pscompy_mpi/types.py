"""Types: how they are constructed, and how they were (envelope and contents).

`layouts` computes where the data is; MPI_Type_commit gives that to C, which needs nothing else of a
type. The form of a constructor with MPI_Count has `wide`, which the contents show.
"""

from __future__ import annotations

import array
from functools import partial
from typing import NamedTuple

from pscompy_mpi import constants, host, layouts
from pscompy_mpi.carrier import MpiError, named
from pscompy_mpi.handles import objects
from pscompy_mpi.layouts import Layout, Part
from pscompy_mpi.topologies import coords


class Contents(NamedTuple):
    """The call that has constructed a type, and its arguments."""

    combiner: int
    integers: list[int]
    addresses: list[int]
    counts: list[int]
    types: list[Datatype]


class Datatype:
    """A type of MPI. One that is named is there from the start."""

    def __init__(self, layout: Layout, contents: Contents, handle: int | None = None) -> None:
        self.layout = layout
        self.contents = contents
        self.named = contents.combiner == constants.COMBINER_NAMED
        self.name = ""
        low, high = layout.true_bounds
        self.handle = handle or host.state().native.type_create(
            layout.size, layout.lb, layout.extent, low, high - low
        )
        objects["t"][self.handle] = self

    def commit(self) -> None:
        layout = self.layout
        blocks = () if layout.contiguous else layout.blocks
        numbers = array.array("q")
        for block in blocks:
            numbers.extend((block.offset, block.run, len(block.dims)))
            numbers.extend(number for dim in block.dims for number in dim)
        elements = array.array("q", [number for it in layout.elements for number in it])
        host.state().native.type_commit(
            self.handle, len(blocks), numbers.tobytes(), layout.times, elements.tobytes()
        )

    def copy(self) -> Datatype:
        """The same type with a handle of its own."""
        return self if self.named else Datatype(self.layout, self.contents)


# ---- predefined ----

# name -> the types of the two parts
PAIRS = {
    "FLOAT_INT": "FLOAT",
    "DOUBLE_INT": "DOUBLE",
    "LONG_INT": "LONG",
    "SHORT_INT": "SHORT",
    "LONG_DOUBLE_INT": "LONG_DOUBLE",
}
# types that have no name, but are there from the start as well
FORTRAN = (
    constants.COMBINER_F90_INTEGER,
    constants.COMBINER_F90_REAL,
    constants.COMBINER_F90_COMPLEX,
)
NAMED = Contents(constants.COMBINER_NAMED, [], [], [], [])


def _predefine() -> None:
    """Make the types that are there from the start. A number that two names have, such as that of
    LONG_LONG_INT, has the first one."""
    for name, handle in constants.NUMBERS.items():
        if handle >> 16 & 0xFFFF == 0x4C00 and handle not in objects["t"]:
            layout = layouts.basic(handle >> 8 & 0xFF, 2 if "COMPLEX" in name else 1)
            Datatype(layout, NAMED, handle).name = f"MPI_{name}"
    for name, value in PAIRS.items():
        layout = _pair(objects["t"][constants.NUMBERS[value]].layout)
        Datatype(layout, NAMED, constants.NUMBERS[name]).name = f"MPI_{name}"
    objects["t"][constants.NUMBERS["2INT"]].layout = _pair(layouts.basic(4))


def _pair(value: Layout) -> Layout:
    """A value and an int behind it, as in a structure of C."""
    whole = layouts.joined([Part(0, 1, value), Part(-(-value.size // 4) * 4, 1, layouts.basic(4))])
    return layouts.padded(whole)


_predefine()


# ---- constructors ----


def _made(
    layout: Layout,
    combiner: int,
    integers: list[int],
    addresses: list[int],
    types: list[Datatype],
    wide: bool,
) -> Datatype:
    """A type whose contents are counts if its constructor takes MPI_Count."""
    if wide:
        return Datatype(layout, Contents(combiner, [], [], integers + addresses, types))
    return Datatype(layout, Contents(combiner, integers, addresses, [], types))


def _check(*counts: int) -> None:
    if any(it < 0 for it in counts):
        raise MpiError(constants.ERR_COUNT)


def type_dup(old: Datatype) -> Datatype:
    from pscompy_mpi import attributes

    made = Datatype(old.layout, Contents(constants.COMBINER_DUP, [], [], [], [old]))
    attributes.copy_all("t", old.handle, made.handle)
    made.commit()
    return made


def type_contiguous(count: int, old: Datatype, wide: bool = False) -> Datatype:
    _check(count)
    layout = layouts.joined([Part(0, count, old.layout)])
    return _made(layout, constants.COMBINER_CONTIGUOUS, [count], [], [old], wide)


def type_vector(
    count: int, blocklength: int, stride: int, old: Datatype, wide: bool = False
) -> Datatype:
    _check(count, blocklength)
    layout = layouts.vector(count, blocklength, stride * old.layout.extent, old.layout)
    given = [count, blocklength, stride]
    return _made(layout, constants.COMBINER_VECTOR, given, [], [old], wide)


def type_create_hvector(
    count: int, blocklength: int, stride: int, old: Datatype, wide: bool = False
) -> Datatype:
    _check(count, blocklength)
    layout = layouts.vector(count, blocklength, stride, old.layout)
    given = [count, blocklength]
    return _made(layout, constants.COMBINER_HVECTOR, given, [stride], [old], wide)


def _indexed(lengths: list[int], offsets: list[int], old: Datatype) -> Layout:
    _check(*lengths)
    parts = zip(offsets, lengths, strict=True)
    return layouts.joined(Part(at, n, old.layout) for at, n in parts)


def _scaled(positions: list[int], old: Datatype) -> list[int]:
    return [it * old.layout.extent for it in positions]


def type_indexed(
    count: int, lengths: list[int], positions: list[int], old: Datatype, wide: bool = False
) -> Datatype:
    _check(count)
    layout = _indexed(lengths, _scaled(positions, old), old)
    given = [count, *lengths, *positions]
    return _made(layout, constants.COMBINER_INDEXED, given, [], [old], wide)


def type_create_hindexed(
    count: int, lengths: list[int], offsets: list[int], old: Datatype, wide: bool = False
) -> Datatype:
    _check(count)
    layout = _indexed(lengths, offsets, old)
    return _made(layout, constants.COMBINER_HINDEXED, [count, *lengths], offsets, [old], wide)


def type_create_indexed_block(
    count: int, length: int, positions: list[int], old: Datatype, wide: bool = False
) -> Datatype:
    _check(count)
    layout = _indexed([length] * count, _scaled(positions, old), old)
    given = [count, length, *positions]
    return _made(layout, constants.COMBINER_INDEXED_BLOCK, given, [], [old], wide)


def type_create_hindexed_block(
    count: int, length: int, offsets: list[int], old: Datatype, wide: bool = False
) -> Datatype:
    _check(count)
    layout = _indexed([length] * count, offsets, old)
    given = [count, length]
    return _made(layout, constants.COMBINER_HINDEXED_BLOCK, given, offsets, [old], wide)


def type_create_struct(
    count: int, lengths: list[int], offsets: list[int], types: list[Datatype], wide: bool = False
) -> Datatype:
    _check(count, *lengths)
    parts = zip(offsets, lengths, types, strict=True)
    layout = layouts.joined(Part(at, n, it.layout) for at, n, it in parts)
    if all(it.contents.combiner != constants.COMBINER_RESIZED for it in types):
        layout = layouts.padded(layout)
    given = [count, *lengths]
    return _made(layout, constants.COMBINER_STRUCT, given, offsets, types, wide)


def type_create_resized(old: Datatype, lb: int, extent: int, wide: bool = False) -> Datatype:
    layout = layouts.resized(old.layout, lb, extent)
    return _made(layout, constants.COMBINER_RESIZED, [], [lb, extent], [old], wide)


# ---- arrays ----


def type_create_subarray(
    ndims: int,
    sizes: list[int],
    subsizes: list[int],
    starts: list[int],
    order: int,
    old: Datatype,
    wide: bool = False,
) -> Datatype:
    for size, subsize, start in zip(sizes, subsizes, starts, strict=True):
        if subsize < 1 or start < 0 or start + subsize > size:
            raise MpiError(constants.ERR_ARG)
    owned = [[it] for it in zip(starts, subsizes, strict=True)]
    layout = _grid(sizes, owned, order, old)
    counts = [*sizes, *subsizes, *starts]
    combiner = constants.COMBINER_SUBARRAY
    if wide:
        return Datatype(layout, Contents(combiner, [ndims, order], [], counts, [old]))
    return Datatype(layout, Contents(combiner, [ndims, *counts, order], [], [], [old]))


def type_create_darray(
    size: int,
    rank: int,
    ndims: int,
    sizes: list[int],
    distributions: list[int],
    arguments: list[int],
    grid: list[int],
    order: int,
    old: Datatype,
    wide: bool = False,
) -> Datatype:
    places = coords(rank, grid)
    dims = zip(sizes, distributions, arguments, grid, places, strict=True)
    layout = _grid(sizes, [_owned(*it) for it in dims], order, old)
    rest = [*distributions, *arguments, *grid, order]
    head, combiner = [size, rank, ndims], constants.COMBINER_DARRAY
    if wide:
        return Datatype(layout, Contents(combiner, [*head, *rest], [], sizes, [old]))
    return Datatype(layout, Contents(combiner, [*head, *sizes, *rest], [], [], [old]))


def _grid(
    sizes: list[int], owned: list[list[tuple[int, int]]], order: int, old: Datatype
) -> Layout:
    if order == constants.ORDER_FORTRAN:
        return layouts.grid(sizes[::-1], owned[::-1], old.layout)
    if order != constants.ORDER_C:
        raise MpiError(constants.ERR_ARG)
    return layouts.grid(sizes, owned, old.layout)


def _owned(size: int, how: int, argument: int, ranks: int, place: int) -> list[tuple[int, int]]:
    """The ranges of one dimension that belong to the ranks of this place."""
    default = argument == constants.DISTRIBUTE_DFLT_DARG
    if how == constants.DISTRIBUTE_NONE:
        return [(0, size)]
    if how == constants.DISTRIBUTE_BLOCK:
        length = -(-size // ranks) if default else argument
        begin = min(place * length, size)
        return [(begin, min(length, size - begin))]
    if how != constants.DISTRIBUTE_CYCLIC:
        raise MpiError(constants.ERR_ARG)
    length = 1 if default else argument
    begins = range(place * length, size, ranks * length)
    return [(begin, min(length, size - begin)) for begin in begins]


# ---- life ----


def type_commit(given: Datatype) -> Datatype:
    if not given.named:
        given.commit()
    return given


def type_free(given: Datatype) -> None:
    from pscompy_mpi import attributes

    if given.named or given.contents.combiner in FORTRAN:
        raise MpiError(constants.ERR_TYPE)
    attributes.delete_all("t", given.handle)
    del objects["t"][given.handle]
    host.state().native.type_free(given.handle)


# ---- what there is to know ----


def type_get_envelope(given: Datatype) -> tuple[int, int, int, int]:
    it = given.contents
    if it.counts:
        raise MpiError(constants.ERR_TYPE)
    return len(it.integers), len(it.addresses), len(it.types), it.combiner


def type_get_envelope_c(given: Datatype) -> tuple[int, int, int, int, int]:
    it = given.contents
    lengths = len(it.integers), len(it.addresses), len(it.counts), len(it.types)
    return (*lengths, it.combiner)


def type_get_contents(
    given: Datatype, integers: int, addresses: int, types: int
) -> tuple[list[int], list[int], list[Datatype]]:
    it = given.contents
    if given.named or it.counts:
        raise MpiError(constants.ERR_TYPE)
    return it.integers, it.addresses, [each.copy() for each in it.types]


def type_get_contents_c(
    given: Datatype, integers: int, addresses: int, counts: int, types: int
) -> tuple[list[int], list[int], list[int], list[Datatype]]:
    it = given.contents
    if given.named:
        raise MpiError(constants.ERR_TYPE)
    return it.integers, it.addresses, it.counts, [each.copy() for each in it.types]


def type_get_name(given: Datatype | None) -> tuple[str, int]:
    return named(given.name if given else "MPI_DATATYPE_NULL")


def type_set_name(given: Datatype, name: str) -> None:
    given.name = name


# ---- the forms with MPI_Count ----

for _function in (
    *(type_contiguous, type_vector, type_create_hvector, type_indexed, type_create_hindexed),
    *(type_create_indexed_block, type_create_hindexed_block, type_create_struct),
    *(type_create_resized, type_create_subarray, type_create_darray),
):
    globals()[f"{_function.__name__}_c"] = partial(_function, wide=True)
