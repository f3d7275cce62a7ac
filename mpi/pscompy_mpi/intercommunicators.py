"""Inter-communicators: two groups, whose ranks send to those of the other group.

Each is a communicator of pscompy with the ranks of both groups (`Comm.n_first`). src/between.c has
their collectives; what else they do is in communicators.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pscompy import capi
from pscompy_mpi import constants, host
from pscompy_mpi.carrier import MpiError, mpi_error
from pscompy_mpi.communicators import Comm, among, create, inter, intra, turn

if TYPE_CHECKING:
    from pscompy_mpi.groups import Group
    from pscompy_mpi.info import Info


def intercomm_create(
    local: Comm, leader: int, peer: Comm | None, remote_leader: int, tag: int
) -> Comm:
    """Make an inter-communicator of the ranks of `local` and those of another communicator, whose
    leader is a rank of `peer`. Only the leader needs `peer`.

    Nothing depends on `tag`: threads that do this at once with the same ranks need a lock, so that
    all ranks do it in the same order.
    """
    inner = turn(intra(local))
    if leader not in range(inner.size):
        raise MpiError(constants.ERR_RANK)
    answer = _answer(local, peer, remote_leader) if inner.rank == leader else None
    remote = inner.bcast_obj(answer, root=leader)
    if isinstance(remote, tuple):
        raise MpiError(*remote)
    made = _between(local.members, remote, constants.ERRHANDLER_NULL)
    host.state().native.comm_inherit(local.handle, made.handle)
    return made


def intercomm_create_from_groups(
    local: Group,
    leader: int,
    remote: Group,
    remote_leader: int,
    tag: str,
    info: Info | None,
    errhandler: int,
) -> Comm:
    if not remote.members or set(local.members) & set(remote.members):
        raise MpiError(constants.ERR_GROUP, "the groups have a rank in common, or one has none")
    return _between(local.members, remote.members, errhandler)


def _between(local: Sequence[int], remote: Sequence[int], errhandler: int) -> Comm:
    """The first group is that with the lowest rank of the job, so all agree on it."""
    first, second = sorted([local, remote], key=min)
    return among([*first, *second], errhandler, len(first))


def _answer(local: Comm, peer: Comm | None, remote_leader: int) -> list[int] | tuple[int, str]:
    """The leader's answer to its group, which waits for one: the members of the other group, or the
    class and the text of an error."""
    try:
        return _met(local, peer, remote_leader)
    except Exception as error:
        found = mpi_error(error)
        return found.error_class, str(found)


def _met(local: Comm, peer: Comm | None, remote_leader: int) -> list[int]:
    """Return the members of the other group."""
    if peer is None:
        raise MpiError(constants.ERR_COMM)
    peers = peer.remote if peer.is_inter else peer.members
    if remote_leader not in range(len(peers)):
        raise MpiError(constants.ERR_RANK)
    leaders = {host.state().world.rank, peers[remote_leader]}
    everyone = capi.members(peer.inner)
    with peer.inner.create(sorted(everyone.index(it) for it in leaders)) as pair:
        remote = pair.allgather_obj(local.members)[pair.size - 1 - pair.rank]
    return _checked(remote, local)


def _checked(remote: Any, local: Comm) -> list[int]:
    """The list that the other leader has sent, which is to be a group beside `local`."""
    ranks = range(host.state().world.size)
    if not isinstance(remote, list) or not all(type(it) is int and it in ranks for it in remote):
        raise MpiError(constants.ERR_COMM, "the other leader has sent no list of ranks")
    if not remote or len({*remote, *local.members}) < len(remote) + len(local.members):
        raise MpiError(constants.ERR_COMM, "the groups have a rank in common, or one has none")
    return remote


def intercomm_merge(comm: Comm, high: int) -> Comm:
    """Make a communicator of both groups. The ranks of the group that says high come last."""
    made = turn(inter(comm)).split(0, int(bool(high)))
    assert made is not None
    return create(made, comm)
