"""MPI on pscompy: a libmpi.so.12 with MPICH's ABI, on which mpi4py runs unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pscompy import Communicator


def communicator(comm: Any) -> Communicator:
    """Return the pscompy Communicator of a communicator of mpi4py: the same ranks, for asyncio,
    objects and timeouts, over the connections that MPI uses.

    The first call for a communicator is collective over it; later ones return the same object.
    Its messages have contexts of their own, so they match none of MPI's. It is closed when the
    communicator is freed. Raises `ValueError` if there is no such communicator in this process's
    MPI, which must be that of pscompy.
    """
    from pscompy_mpi import communicators

    return communicators.companion(comm)
