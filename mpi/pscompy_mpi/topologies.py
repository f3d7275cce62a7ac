"""Topologies: numberings of ranks by grids and graphs, which a communicator keeps."""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

from pscompy_mpi import communicators, constants
from pscompy_mpi.carrier import MpiError
from pscompy_mpi.communicators import Comm


def coords(rank: int, dims: list[int]) -> list[int]:
    """Return the place of a rank in each dimension of a grid; the last dimension varies fastest."""
    found = []
    for size in reversed(dims):
        rank, place = divmod(rank, size)
        found.append(place)
    return found[::-1]


class Cart(NamedTuple):
    """A grid; the last dimension varies fastest."""

    dims: list[int]
    periods: list[int]

    def coords(self, rank: int) -> list[int]:
        return coords(rank, self.dims)

    def rank(self, coords: list[int]) -> int:
        """The rank at these coordinates, or MPI_PROC_NULL outside of the grid."""
        rank = 0
        for place, size, period in zip(coords, self.dims, self.periods, strict=True):
            if place not in range(size) and not period:
                return constants.PROC_NULL
            rank = rank * size + place % size
        return rank


class Graph(NamedTuple):
    ends: list[int]  # of each rank, where its neighbours end in `edges`
    edges: list[int]

    def neighbors(self, rank: int) -> list[int]:
        if rank not in range(len(self.ends)):
            raise MpiError(constants.ERR_RANK)
        return self.edges[self.ends[rank - 1] if rank else 0 : self.ends[rank]]


def topo_test(comm: Comm) -> int:
    kinds: dict[type, int] = {Cart: constants.CART, Graph: constants.GRAPH}
    return kinds.get(type(comm.topology), constants.UNDEFINED)


def _cart(comm: Comm) -> Cart:
    if not isinstance(comm.topology, Cart):
        raise MpiError(constants.ERR_TOPOLOGY)
    return comm.topology


def _graph(comm: Comm) -> Graph:
    if not isinstance(comm.topology, Graph):
        raise MpiError(constants.ERR_TOPOLOGY)
    return comm.topology


def _read(address: int, n: int) -> list[int]:
    """The numbers of an array of which C knows no length."""
    return list((ctypes.c_int * n).from_address(address)) if n else []


def _create(comm: Comm, n: int, topology: Cart | Graph) -> Comm | None:
    """A communicator of the first n ranks."""
    if n > communicators.intra(comm).inner.size:
        raise MpiError(constants.ERR_ARG)
    rank = comm.inner.rank
    made = communicators.turn(comm).split(0 if rank < n else None, rank)
    if made is None:
        return None
    created = communicators.create(made, comm)
    created.topology = topology
    return created


# ---- grids ----


def cart_create(
    comm: Comm, ndims: int, dims: list[int], periods: list[int], reorder: int
) -> Comm | None:
    if any(it < 1 for it in dims):
        raise MpiError(constants.ERR_DIMS)
    flags = [int(bool(it)) for it in periods]
    return _create(comm, math.prod(dims), Cart(dims, flags))


def cartdim_get(comm: Comm) -> int:
    return len(_cart(comm).dims)


def cart_get(comm: Comm, ndims: int) -> tuple[list[int], list[int], list[int]]:
    cart = _cart(comm)
    return cart.dims, cart.periods, cart.coords(comm.inner.rank)


def cart_rank(comm: Comm, coords: int) -> int:
    cart = _cart(comm)
    rank = cart.rank(_read(coords, len(cart.dims)))
    if rank == constants.PROC_NULL:
        raise MpiError(constants.ERR_ARG)
    return rank


def cart_coords(comm: Comm, rank: int, ndims: int) -> list[int]:
    if rank not in range(comm.inner.size):
        raise MpiError(constants.ERR_RANK)
    return _cart(comm).coords(rank)


def cart_shift(comm: Comm, direction: int, steps: int) -> tuple[int, int]:
    """Return the ranks so many steps before and behind this one."""
    cart = _cart(comm)
    if direction not in range(len(cart.dims)):
        raise MpiError(constants.ERR_DIMS)
    here = cart.coords(comm.inner.rank)

    def moved(by: int) -> int:
        return cart.rank([it + by * (i == direction) for i, it in enumerate(here)])

    return moved(-steps), moved(steps)


def cart_sub(comm: Comm, remain: int) -> Comm | None:
    """Split a grid into those of the dimensions that remain."""
    cart = _cart(comm)
    kept = [bool(it) for it in _read(remain, len(cart.dims))]
    here = cart.coords(comm.inner.rank)
    chosen = [i for i, it in enumerate(kept) if it]
    sub = Cart([cart.dims[i] for i in chosen], [cart.periods[i] for i in chosen])
    others = Cart([it for it, keep in zip(cart.dims, kept, strict=True) if not keep], [])
    places = [it for it, keep in zip(here, kept, strict=True) if not keep]
    color = others._replace(periods=[0] * len(places)).rank(places)
    key = sub.rank([here[i] for i in chosen])
    made = communicators.turn(comm).split(color, key)
    if made is None:
        return None
    created = communicators.create(made, comm)
    created.topology = sub
    return created


def cart_map(comm: Comm, ndims: int, dims: list[int], periods: list[int]) -> int:
    rank = comm.inner.rank
    return rank if rank < math.prod(dims) else constants.UNDEFINED


# ---- graphs ----


def graph_create(comm: Comm, n: int, index: list[int], edges: int, reorder: int) -> Comm | None:
    return _create(comm, n, Graph(index, _read(edges, index[-1] if index else 0)))


def graphdims_get(comm: Comm) -> tuple[int, int]:
    graph = _graph(comm)
    return len(graph.ends), len(graph.edges)


def graph_get(comm: Comm, n_nodes: int, n_edges: int) -> tuple[list[int], list[int]]:
    graph = _graph(comm)
    return graph.ends, graph.edges


def graph_map(comm: Comm, n: int, index: list[int], edges: int) -> int:
    return comm.inner.rank if comm.inner.rank < n else constants.UNDEFINED


def graph_neighbors_count(comm: Comm, rank: int) -> int:
    return len(_graph(comm).neighbors(rank))


def graph_neighbors(comm: Comm, rank: int, n: int) -> list[int]:
    return _graph(comm).neighbors(rank)


# ---- factors ----


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
