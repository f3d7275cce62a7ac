"""Communicators: duplicating, splitting, comparing, names. Sending and receiving is in C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pscompy import capi
from pscompy_mpi import constants, host
from pscompy_mpi.carrier import MpiError
from pscompy_mpi.handles import objects

if TYPE_CHECKING:
    from pscompy import Communicator
    from pscompy_mpi.groups import Group
    from pscompy_mpi.info import Info
    from pscompy_mpi.topologies import Cart, Graph

PREDEFINED = (constants.COMM_WORLD, constants.COMM_SELF)
# communicators that were freed while they have requests, by their contexts
_freed: dict[int, Communicator] = {}
# parts of a machine that comm_split_type knows by name, and that no rank is in
KINDS_OF_PARTS = (
    constants.COMM_TYPE_HW_GUIDED,
    constants.COMM_TYPE_HW_UNGUIDED,
    constants.COMM_TYPE_RESOURCE_GUIDED,
)


class Comm:
    """A communicator of MPI, on one of pscompy whose contexts it uses."""

    def __init__(self, inner: Communicator, name: str) -> None:
        self.inner = inner
        self.name = name
        self.info: dict[str, str] = {}
        self.topology: Cart | Graph | None = None
        self.companion: Communicator | None = None  # the program's, by `companion`
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
    from pscompy_mpi import attributes

    made = create(comm.inner.dup(), comm)
    attributes.copy_all("c", comm.handle, made.handle)
    made.info = dict(comm.info)
    made.topology = comm.topology
    return made


def comm_dup_with_info(comm: Comm, info: Info | None) -> Comm:
    made = comm_dup(comm)
    made.info = dict(info.pairs) if info else {}
    return made


def comm_free(comm: Comm) -> None:
    """End a communicator; a null handle replaces it."""
    from pscompy_mpi import attributes

    if comm.handle in PREDEFINED:
        raise MpiError(constants.ERR_COMM)
    attributes.delete_all("c", comm.handle)
    del objects["c"][comm.handle]
    if comm.companion is not None:
        comm.companion.close()
    _freed[capi.context(comm.inner)] = comm.inner
    host.state().native.comm_destroy(comm.handle)


comm_disconnect = comm_free


def close(context: int) -> None:
    """Close a communicator that was freed, once it has no more requests."""
    inner = _freed.pop(context, None)
    if inner is not None:
        inner.close()


def companion(comm: Any) -> Communicator:
    """Return the Communicator that the program has beside one of mpi4py; see `pscompy_mpi`."""
    handle = constants.signed(comm.handle & 0xFFFFFFFF)
    found = objects["c"].get(handle)
    if not isinstance(found, Comm):
        raise ValueError(f"{comm} is no communicator of pscompy's MPI, or MPI does not run")
    if found.companion is None:
        found.companion = found.inner.dup()
    return found.companion


# ---- parts ----


def comm_split(comm: Comm, color: int, key: int) -> Comm | None:
    if color < 0 and color != constants.UNDEFINED:
        raise MpiError(constants.ERR_ARG)
    made = comm.inner.split(None if color == constants.UNDEFINED else color, key)
    return None if made is None else create(made, comm)


def comm_split_type(comm: Comm, kind: int, key: int, info: Info | None) -> Comm | None:
    """Split by nodes. No rank is in another part of the machine, whatever its name."""
    wanted = info.pairs.get("mpi_hw_resource_type") if info else None
    guided = kind in (constants.COMM_TYPE_HW_GUIDED, constants.COMM_TYPE_RESOURCE_GUIDED)
    if kind == constants.COMM_TYPE_SHARED or (guided and wanted == "mpi_shared_memory"):
        return _split_by_node(comm, key)
    if kind != constants.UNDEFINED and kind not in KINDS_OF_PARTS:
        raise MpiError(constants.ERR_ARG)
    _split_by_node(comm, None)
    return None


def _split_by_node(comm: Comm, key: int | None) -> Comm | None:
    """Called by all ranks; one that gives no key is in no part."""
    node = comm.inner.split_by_node()
    made = node.split(None if key is None else 0, key or 0)
    node.close()
    return None if made is None else create(made, comm)


def comm_create(comm: Comm, group: Group) -> Comm | None:
    rank = group.rank_of(host.state().world.rank)
    made = comm.inner.split(None if rank == constants.UNDEFINED else 0, max(rank, 0))
    return None if made is None else create(made, comm)


def comm_create_group(comm: Comm, group: Group, tag: int) -> Comm | None:
    if host.state().world.rank not in group.members:
        return None
    return create(comm.inner.create([comm.members.index(it) for it in group.members]), comm)


# ---- what there is to know ----


def comm_group(comm: Comm) -> Group:
    from pscompy_mpi.groups import group_of

    return group_of(comm.members)


def comm_remote_group(comm: Comm) -> None:
    raise MpiError(constants.ERR_COMM)


def comm_get_parent() -> None:
    """No job has been started by another one."""


def comm_get_info(comm: Comm) -> Info:
    from pscompy_mpi.info import Info

    return Info(comm.info)


def comm_set_info(comm: Comm, info: Info | None) -> None:
    comm.info |= info.pairs if info else {}


def comm_compare(one: Comm, other: Comm) -> int:
    if one is other:
        return constants.IDENT
    if one.members == other.members:
        return constants.CONGRUENT
    same = sorted(one.members) == sorted(other.members)
    return constants.SIMILAR if same else constants.UNEQUAL


def comm_get_name(comm: Comm | None) -> tuple[str, int]:
    name = comm.name if comm else "MPI_COMM_NULL"
    return name, len(name.encode())


def comm_set_name(comm: Comm, name: str) -> None:
    comm.name = name
