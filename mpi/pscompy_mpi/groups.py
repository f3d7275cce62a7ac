"""Groups: ordered sets of ranks of the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pscompy_mpi import constants, handles, host
from pscompy_mpi.carrier import MpiError


class Group:
    """Some ranks of the job; a member's rank is its place."""

    def __init__(self, members: Iterable[int], handle: int | None = None) -> None:
        self.members = tuple(members)
        self.handle = handles.add("g", self) if handle is None else handle

    def rank_of(self, member: int) -> int:
        return self.members.index(member) if member in self.members else constants.UNDEFINED


EMPTY = Group((), constants.GROUP_EMPTY)
handles.objects["g"][EMPTY.handle] = EMPTY


def group_of(members: Iterable[int]) -> Group:
    """The group of these members; the empty one has a handle of its own."""
    listed = tuple(members)
    return Group(listed) if listed else EMPTY


def group_size(group: Group) -> int:
    return len(group.members)


def group_rank(group: Group) -> int:
    return group.rank_of(host.state().world.rank)


def group_compare(one: Group, other: Group) -> int:
    if one.members == other.members:
        return constants.IDENT
    same = sorted(one.members) == sorted(other.members)
    return constants.SIMILAR if same else constants.UNEQUAL


def group_translate_ranks(one: Group, n: int, ranks: list[int], other: Group) -> list[int]:
    return [_translated(one, rank, other) for rank in ranks]


def _translated(one: Group, rank: int, other: Group) -> int:
    if rank == constants.PROC_NULL:
        return rank
    _check([rank], one)
    return other.rank_of(one.members[rank])


def group_union(one: Group, other: Group) -> Group:
    return group_of(one.members + tuple(it for it in other.members if it not in one.members))


def group_intersection(one: Group, other: Group) -> Group:
    return group_of(it for it in one.members if it in other.members)


def group_difference(one: Group, other: Group) -> Group:
    return group_of(it for it in one.members if it not in other.members)


def group_incl(group: Group, n: int, ranks: list[int]) -> Group:
    _check(ranks, group)
    return group_of(group.members[rank] for rank in ranks)


def group_excl(group: Group, n: int, ranks: list[int]) -> Group:
    _check(ranks, group)
    return group_of(it for rank, it in enumerate(group.members) if rank not in ranks)


def group_range_incl(group: Group, n: int, ranges: list[int]) -> Group:
    return group_incl(group, n, _ranks_of(ranges))


def group_range_excl(group: Group, n: int, ranges: list[int]) -> Group:
    return group_excl(group, n, _ranks_of(ranges))


def _ranks_of(ranges: list[int]) -> list[int]:
    """The ranks of ranges, of which each has a first rank, a last rank, and a step."""
    ranks: list[int] = []
    for first, last, step in zip(ranges[::3], ranges[1::3], ranges[2::3], strict=True):
        if step == 0:
            raise MpiError(constants.ERR_ARG)
        ranks += range(first, last + (1 if step > 0 else -1), step)
    return ranks


def _check(ranks: Sequence[int], group: Group) -> None:
    if any(rank not in range(len(group.members)) for rank in ranks):
        raise MpiError(constants.ERR_RANK)
    if len(set(ranks)) < len(ranks):
        raise MpiError(constants.ERR_RANK)


def group_free(group: Group) -> None:
    if group is not EMPTY:
        handles.remove("g", group.handle)
