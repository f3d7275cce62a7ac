"""Types found by what they hold: by the precision that a program of Fortran wants, by size, or by
the two types of a pair.
"""

from __future__ import annotations

from pscompy_mpi import constants, layouts
from pscompy_mpi.carrier import MpiError
from pscompy_mpi.handles import objects
from pscompy_mpi.types import PAIRS, Contents, Datatype

_f90: dict[tuple[int, ...], Datatype] = {}


def _fortran(combiner: int, given: list[int], size: int, parts: int = 1) -> Datatype:
    """A type that is there from the start, although it has no name: it is not freed."""
    key = (combiner, *given)
    if key not in _f90:
        _f90[key] = Datatype(layouts.basic(size, parts), Contents(combiner, given, [], [], []))
        _f90[key].commit()
    return _f90[key]


def type_create_f90_integer(digits: int) -> Datatype:
    for most, size in ((2, 1), (4, 2), (9, 4), (18, 8)):
        if digits <= most:
            return _fortran(constants.COMBINER_F90_INTEGER, [digits], size)
    raise MpiError(constants.ERR_ARG)


def _real_size(digits: int, exponent: int) -> int:
    for most, power, size in ((6, 37, 4), (15, 307, 8), (33, 4931, 16)):
        if _within(digits, most) and _within(exponent, power):
            return size
    raise MpiError(constants.ERR_ARG)


def _within(number: int, most: int) -> bool:
    return number == constants.UNDEFINED or number <= most


def type_create_f90_real(digits: int, exponent: int) -> Datatype:
    size = _real_size(digits, exponent)
    return _fortran(constants.COMBINER_F90_REAL, [digits, exponent], size)


def type_create_f90_complex(digits: int, exponent: int) -> Datatype:
    size = 2 * _real_size(digits, exponent)
    return _fortran(constants.COMBINER_F90_COMPLEX, [digits, exponent], size, 2)


_BY_SIZE = {
    constants.TYPECLASS_INTEGER: ("INTEGER", (1, 2, 4, 8)),
    constants.TYPECLASS_REAL: ("REAL", (4, 8, 16)),
    constants.TYPECLASS_COMPLEX: ("COMPLEX", (8, 16, 32)),
}


def type_match_size(typeclass: int, size: int) -> Datatype:
    name, sizes = _BY_SIZE.get(typeclass, ("", ()))
    if size not in sizes:
        raise MpiError(constants.ERR_ARG)
    made: Datatype = objects["t"][constants.NUMBERS[f"{name}{size}"]]
    return made


def type_get_value_index(value: Datatype, index: Datatype) -> Datatype | None:
    names = {f"MPI_{it}": name for name, it in PAIRS.items()} | {"MPI_INT": "2INT"}
    if index.name != "MPI_INT" or value.name not in names:
        return None
    made: Datatype = objects["t"][constants.NUMBERS[names[value.name]]]
    return made
