"""Collective operations of a communicator, as messages in a context of their own.

The messages go up and down one binomial tree, as a rule with rank 0 at its root, so that n - 1
connections serve n ranks, and no rank has more than log2(n) of them, rounded up. Where the ranks
are in several modules of the machine, the first ranks of the modules form a tree, and each of them
is the root of a tree of its module's ranks, so that only one connection leads into a module. No
thread is needed: the callbacks of one stage's requests begin the next stage.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pscompy.api.request import Request
from pscompy.world.job import Job
from pscompy.world.ranks import Ranks

_TAGS = 2  # tags of one operation: up the tree, and down
_OPERATIONS = 1 << 30  # operations after which their numbers begin again at 0


class Collectives(Ranks):
    """The ranks of a communicator in the context of its collective operations."""

    def __init__(self, job: Job, members: Sequence[int], number: int) -> None:
        super().__init__(job, members, number)
        self._operations = itertools.count()
        self._trees: dict[int, Branch] = {}

    def tree(self, root: int = 0) -> Branch:
        """This rank's place in the tree that has its root at rank `root`."""
        if root not in self._trees:
            modules = self._job.modules_apart(self._members)
            self._trees[root] = tree(self.rank, self.size, root, modules)
        return self._trees[root]

    def first_tag(self) -> int:
        """Return the first tag of the next operation; the same on all ranks, because all begin
        their operations in the same order."""
        return next(self._operations) % _OPERATIONS * _TAGS


Branch = tuple[int | None, list[int]]
"""The parent of a rank, None for the root, and its children in the order in which they are sent to:
the nearest, which have most ranks below them, first."""


def tree(rank: int, size: int, root: int = 0, modules: Sequence[int] | None = None) -> Branch:
    """Return a rank's place in the tree that has its root at rank `root`; `modules` are the modules
    of all ranks, or None if the tree ignores modules."""
    if modules is None:
        parent, children = _binomial((rank - root) % size, size)
        return _shifted(parent, root, size), [(child + root) % size for child in children]
    groups: dict[int, list[int]] = {modules[root]: [root]}
    for other in range(size):
        if other != root:
            groups.setdefault(modules[other], []).append(other)
    leaders = [group[0] for group in groups.values()]
    parent, children = _among(rank, groups[modules[rank]])
    if rank not in leaders:
        return parent, children
    parent, others = _among(rank, leaders)
    return parent, others + children


def _among(rank: int, ranks: list[int]) -> Branch:
    """Return a rank's place in the tree of `ranks`, whose root is the first of them."""
    parent, children = _binomial(ranks.index(rank), len(ranks))
    return None if parent is None else ranks[parent], [ranks[child] for child in children]


def _shifted(number: int | None, root: int, size: int) -> int | None:
    return None if number is None else (number + root) % size


def _binomial(number: int, size: int) -> Branch:
    reach = 1 << number.bit_length()
    parent = number - (reach >> 1) if number else None
    children = []
    while number + reach < size:
        children.append(number + reach)
        reach *= 2
    return parent, children


class Barrier:
    """Every rank sends to its parent once all its children have sent to it. The root then knows
    that all ranks have begun, and releases them down the tree."""

    def __init__(self, ranks: Collectives, request: Request[None]) -> None:
        """Completes `request` when this rank is released."""
        self._ranks = ranks
        self._request = request
        self._up = ranks.first_tag()
        self._parent, self._children = ranks.tree()
        self._stages = iter((self._await_children, self._ask_parent, self._release_children))
        self._size = 0  # number of requests of the current stage
        self._ends = itertools.count(1)  # counts the requests of the current stage that have ended

    def start(self) -> None:
        """Begin the first stage, or the next one that has requests."""
        for stage in self._stages:
            requests = stage()
            if requests:
                self._size, self._ends = len(requests), itertools.count(1)
                for request in requests:
                    request._on_done(self._ended)
                return
        self._request._complete(None)

    def _await_children(self) -> list[Request]:
        return [self._ranks.irecv(bytearray(), child, self._up) for child in self._children]

    def _ask_parent(self) -> list[Request]:
        if self._parent is None:
            return []
        answer = self._ranks.irecv(bytearray(), self._parent, self._up + 1)
        return [answer, self._ranks.isend(b"", self._parent, self._up)]

    def _release_children(self) -> list[Request]:
        return [self._ranks.isend(b"", child, self._up + 1) for child in self._children]

    def _ended(self, request: Request) -> None:
        try:
            request.result()
            if next(self._ends) == self._size:
                self.start()
        except Exception as error:
            self._request._fail(error)


def broadcast(ranks: Collectives, buf: Any, root: int) -> None:
    """Copy the contents of the root's `buf` into `buf` of every rank."""
    tag = ranks.first_tag()
    parent, children = ranks.tree(root)
    if parent is not None:
        ranks.recv(buf, parent, tag)
    for request in [ranks.isend(buf, child, tag) for child in children]:
        request.wait()


def maximum(ranks: Collectives, number: int) -> int:
    """Return the highest of the ranks' numbers, on every rank."""
    tag = ranks.first_tag()
    parent, children = ranks.tree()
    for child in children:
        number = max(number, int.from_bytes(ranks.recv(source=child, tag=tag), "little"))
    if parent is not None:
        ranks.send(number.to_bytes(8, "little"), parent, tag)
        number = int.from_bytes(ranks.recv(source=parent, tag=tag + 1), "little")
    for child in children:
        ranks.send(number.to_bytes(8, "little"), child, tag + 1)
    return number
