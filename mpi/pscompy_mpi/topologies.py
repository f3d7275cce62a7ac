"""Topologies: none yet. MPI_Dims_create needs none."""

from __future__ import annotations

import math

from pscompy_mpi import constants
from pscompy_mpi.carrier import MpiError
from pscompy_mpi.communicators import Comm


def topo_test(comm: Comm) -> int:
    return constants.UNDEFINED


def dims_create(n: int, ndims: int, dims: list[int]) -> list[int]:
    """Factors of n, as close to each other as possible, in the places that have 0."""
    fixed = math.prod(it for it in dims if it)
    if n < 1 or any(it < 0 for it in dims) or n % fixed:
        raise MpiError(constants.ERR_DIMS)
    free = sum(it == 0 for it in dims)
    if free == 0 and fixed != n:
        raise MpiError(constants.ERR_DIMS)
    chosen = iter(_factors(n // fixed, free))
    return [it or next(chosen) for it in dims]


def _factors(n: int, count: int) -> list[int]:
    """So many factors of n, the largest first."""
    found: list[int] = []
    for left in range(count, 0, -1):
        wanted = n ** (1 / left)
        factor = next(it for it in range(max(1, math.ceil(wanted - 1e-9)), n + 1) if n % it == 0)
        found.append(factor)
        n //= factor
    return sorted(found, reverse=True)
