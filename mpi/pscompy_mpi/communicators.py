"""Communicators: duplicating, splitting, comparing, names. Sending and receiving is in C.

Those with two groups, inter-communicators, are created in intercommunicators.py.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pscompy import capi
from pscompy_mpi import carrier, constants, host
from pscompy_mpi.carrier import MpiError
from pscompy_mpi.handles import objects

if TYPE_CHECKING:
    from pscompy import Communicator
    from pscompy_mpi.groups import Group
    from pscompy_mpi.info import Info
    from pscompy_mpi.topologies import Cart, Graph

PREDEFINED = (constants.COMM_WORLD, constants.COMM_SELF)
# Added to the keys of the second group of an inter-communicator, whose ranks follow those of the
# first one; keys are ints of C.
_SECOND = 1 << 40
# communicators that were freed while they have requests, by their contexts
_freed: dict[int, Communicator] = {}
# parts of a machine that comm_split_type knows by name, and that no rank is in
KINDS_OF_PARTS = (
    constants.COMM_TYPE_HW_GUIDED,
    constants.COMM_TYPE_HW_UNGUIDED,
    constants.COMM_TYPE_RESOURCE_GUIDED,
)


class Comm:
    """A communicator of MPI, on one of pscompy whose contexts it uses.

    That of an inter-communicator has the ranks of both groups: first the n_first of one group, then
    those of the other. Otherwise n_first is 0.
    """

    def __init__(self, inner: Communicator, name: str, n_first: int) -> None:
        self.inner = inner
        self.name = name
        self.n_first = n_first
        self.info: dict[str, str] = {}
        self.topology: Cart | Graph | None = None
        self.companion: Communicator | None = None  # the program's, by `companion`
        self.idup: threading.Thread | None = None  # the latest one
        self.promised = False  # by an idup: `inner` is the parent's
        both = capi.members(inner)
        groups = both[:n_first], both[n_first:]
        # whether this process is in the second group, or in the only one
        self.second = inner.rank >= n_first
        # the rank in the job of each rank of this process's group, and of the other group
        self.members, self.remote = groups[self.second], groups[not self.second]
        whole = n_first == 0 and both == list(range(host.state().world.size))
        self.handle = host.state().native.comm_create(
            capi.context(inner), inner.rank, inner.size, None if whole else both, n_first
        )

    @property
    def is_inter(self) -> bool:
        return self.n_first > 0

    @property
    def first(self) -> set[int]:
        """The members of the first of two groups."""
        return set(capi.members(self.inner)[: self.n_first])


def intra(comm: Comm) -> Comm:
    """The communicator, which is to have one group."""
    if comm.is_inter:
        raise MpiError(constants.ERR_COMM, "MPI does not allow this for inter-communicators")
    return comm


def inter(comm: Comm) -> Comm:
    """The communicator, which is to have two groups."""
    if not comm.is_inter:
        raise MpiError(constants.ERR_COMM, "MPI allows this only for inter-communicators")
    return comm


def create(
    inner: Communicator, parent: Comm | None = None, name: str = "", n_first: int = 0
) -> Comm:
    """Make a communicator of MPI of one of pscompy. It inherits the parent's error handler."""
    made = Comm(inner, name, n_first)
    objects["c"][made.handle] = made
    if parent is not None:
        host.state().native.comm_inherit(parent.handle, made.handle)
    return made


def turn(comm: Comm) -> Communicator:
    """The communicator of pscompy for a collective of all ranks, which all of them call after the
    same ones: it waits for the end of an idup that was called before."""
    if comm.idup is not None:
        comm.idup.join()
    return comm.inner


def comm_dup(comm: Comm) -> Comm:
    made = create(turn(comm).dup(), comm, n_first=comm.n_first)
    _copy(comm, made)
    return made


def _copy(comm: Comm, made: Comm) -> None:
    from pscompy_mpi import attributes

    attributes.copy_all("c", comm.handle, made.handle)
    made.info = dict(comm.info)
    made.topology = comm.topology


def comm_dup_with_info(comm: Comm, info: Info | None) -> Comm:
    made = comm_dup(comm)
    made.info = dict(info.pairs) if info else {}
    return made


def comm_idup(comm: Comm) -> tuple[Comm, int]:
    """Return a duplicate that may be used once the request has ended. The ranks agree on its
    context in a thread, because other calls of MPI must not wait for that."""
    made = create(comm.inner, comm, n_first=comm.n_first)
    made.promised = True
    _copy(comm, made)
    request = host.state().native.request_promise(comm.handle)
    given = made, comm.inner, comm.idup, request
    comm.idup = threading.Thread(target=_keep, args=given, name="MPI_Comm_idup", daemon=True)
    comm.idup.start()
    return made, request


def comm_idup_with_info(comm: Comm, info: Info | None) -> tuple[Comm, int]:
    made, request = comm_idup(comm)
    made.info = dict(info.pairs) if info else {}
    return made, request


def _keep(made: Comm, parent: Communicator, before: threading.Thread | None, request: int) -> None:
    """Give a duplicate the context that was promised, once the idup before has ended."""
    native, code = host.state().native, constants.SUCCESS
    try:
        if before is not None:
            before.join()
        made.inner = parent.dup()
        native.comm_move(made.handle, capi.context(made.inner))
        made.promised = False
    except Exception as error:
        code = carrier.code_of(error)
    native.request_keep(request, code)


def comm_free(comm: Comm) -> None:
    """End a communicator; a null handle replaces it."""
    from pscompy_mpi import attributes

    if comm.handle in PREDEFINED:
        raise MpiError(constants.ERR_COMM)
    attributes.delete_all("c", comm.handle)
    del objects["c"][comm.handle]
    if comm.companion is not None:
        comm.companion.close()
    if not comm.promised:
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
    if found.is_inter:
        raise ValueError(f"{comm} has two groups: take the communicator that its Merge returns")
    if found.companion is None:
        found.companion = turn(found).dup()
    return found.companion


# ---- parts ----


def comm_split(comm: Comm, color: int, key: int) -> Comm | None:
    if color < 0 and color != constants.UNDEFINED:
        raise MpiError(constants.ERR_ARG)
    return _divide(comm, turn(comm), None if color == constants.UNDEFINED else color, key)


def _divide(comm: Comm, inner: Communicator, color: int | None, key: int) -> Comm | None:
    """A communicator of the ranks of `inner` that give this color; all of them are ranks of `comm`.
    If `comm` has two groups, it has two, and there is none if one of them would be empty."""
    made = inner.split(color, key + _SECOND * comm.second)
    if made is None:
        return None
    members = capi.members(made)
    n_first = len(comm.first.intersection(members))
    if comm.is_inter and n_first in (0, len(members)):
        made.close()
        return None
    return create(made, comm, n_first=n_first)


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
    node = turn(comm).split_by_node()
    made = _divide(comm, node, None if key is None else 0, key or 0)
    node.close()
    return made


def comm_create(comm: Comm, group: Group) -> Comm | None:
    """Ranks that give different groups come into different communicators. The ranks of the other
    group of an inter-communicator always give another one."""
    rank = group.rank_of(host.state().world.rank)
    if rank == constants.UNDEFINED:
        return _divide(comm, turn(comm), None, 0)
    return _divide(comm, turn(comm), 0 if comm.is_inter else min(group.members), rank)


def comm_create_group(comm: Comm, group: Group, tag: int) -> Comm | None:
    intra(comm)
    if host.state().world.rank not in group.members:
        return None
    return create(comm.inner.create([comm.members.index(it) for it in group.members]), comm)


def comm_create_from_group(group: Group, tag: str, info: Info | None, errhandler: int) -> Comm:
    return among(group.members, errhandler, 0)


def among(members: Sequence[int], errhandler: int, n_first: int) -> Comm:
    """Make a communicator of these members, of which the first `n_first` are a group of their own.
    Only they call it."""
    world = host.state().world
    if world.rank not in members:
        raise MpiError(constants.ERR_GROUP, "this rank is not in the group")
    made = create(world.create(members), n_first=n_first)
    if errhandler != constants.ERRHANDLER_NULL:
        host.state().native.comm_set_errhandler(made.handle, errhandler)
    return made


# ---- what there is to know ----


def comm_group(comm: Comm) -> Group:
    from pscompy_mpi.groups import group_of

    return group_of(comm.members)


def comm_remote_group(comm: Comm) -> Group:
    from pscompy_mpi.groups import group_of

    return group_of(inter(comm).remote)


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
    groups = [(it.members, it.remote) for it in (one, other)]
    if groups[0] == groups[1]:
        return constants.CONGRUENT
    same = [[sorted(members) for members in it] for it in groups]
    return constants.SIMILAR if same[0] == same[1] else constants.UNEQUAL


def comm_get_name(comm: Comm | None) -> tuple[str, int]:
    return carrier.named(comm.name if comm else "MPI_COMM_NULL")


def comm_set_name(comm: Comm, name: str) -> None:
    comm.name = name
