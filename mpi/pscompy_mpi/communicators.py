"""Communicators: duplicating, splitting, comparing, names. Sending and receiving is in C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pscompy import capi
from pscompy_mpi import constants, host
from pscompy_mpi.carrier import MpiError, objects

if TYPE_CHECKING:
    from pscompy import Communicator

PREDEFINED = (constants.COMM_WORLD, constants.COMM_SELF)


class Comm:
    """A communicator of MPI, on one of pscompy whose contexts it uses."""

    def __init__(self, inner: Communicator, name: str) -> None:
        self.inner = inner
        self.name = name
        members = capi.members(inner)
        whole = members == list(range(host.state().world.size))
        self.members = members  # the rank in the job of each rank
        self.handle = host.state().native.comm_create(
            capi.context(inner), inner.rank, inner.size, None if whole else members
        )


def create(inner: Communicator, parent: Comm | None = None, name: str = "") -> Comm:
    """Make a communicator of MPI of one of pscompy. It inherits the parent's error handler."""
    made = Comm(inner, name)
    objects["c"][made.handle] = made
    if parent is not None:
        host.state().native.comm_inherit(parent.handle, made.handle)
    return made


def comm_dup(comm: Comm) -> Comm:
    return create(comm.inner.dup(), comm)


def comm_free(comm: Comm) -> None:
    """End a communicator; a null handle replaces it."""
    if comm.handle in PREDEFINED:
        raise MpiError(constants.ERR_COMM)
    del objects["c"][comm.handle]
    host.state().native.comm_destroy(comm.handle)
    comm.inner.close()


comm_disconnect = comm_free


def comm_split(comm: Comm, color: int, key: int) -> Comm | None:
    made = comm.inner.split(None if color == constants.UNDEFINED else color, key)
    return None if made is None else create(made, comm)


def comm_compare(one: Comm, other: Comm) -> int:
    if one is other:
        return constants.IDENT
    if one.members == other.members:
        return constants.CONGRUENT
    same = sorted(one.members) == sorted(other.members)
    return constants.SIMILAR if same else constants.UNEQUAL


def comm_get_name(comm: Comm) -> tuple[str, int]:
    return comm.name, len(comm.name.encode())


def comm_set_name(comm: Comm, name: str) -> None:
    comm.name = name
