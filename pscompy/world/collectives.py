"""What all ranks of a World do together, as messages of its collective context.

All of it goes up and down one binomial tree, mostly with rank 0 at its root, so that n - 1
connections serve n ranks, and no rank has more than log2(n) of them. Where the ranks are in several
modules of the machine, it is a tree of the modules' first ranks, with one of each module's ranks
below each, so that only one connection leads into a module. No thread is needed: the callbacks of
one stage's requests begin the next stage.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pscompy.api.connection import Connection
from pscompy.api.request import Request
from pscompy.binding import _binding

if TYPE_CHECKING:
    from pscompy.world.world import World


_TAGS = 2  # of one operation: up, and down
_OPERATIONS = 1 << 30  # then their numbers begin again


class Ranks(_binding.Communicator):
    """The ranks of a World in the context of its collective operations."""

    def __init__(self, world: World, context: int) -> None:
        self._world = world
        self._context = context
        self._operations = itertools.count()
        self.rank, self.size = world.rank, world.size
        self._trees: dict[int, Branch] = {}
        self._bind(world._hot, world.size, context)

    def tree(self, root: int = 0) -> Branch:
        """This rank's place in the tree with that root."""
        if root not in self._trees:
            self._trees[root] = tree(self.rank, self.size, root, self._world._modules_apart)
        return self._trees[root]

    def first_tag(self) -> int:
        """Of the next operation; the same on all ranks, which begin them in the same order."""
        return next(self._operations) % _OPERATIONS * _TAGS

    def _peer(self, rank: int) -> Connection:
        base = self._world[rank]
        return Connection(base._worker, base._control, base._record, self._context)


Branch = tuple[int | None, list[int]]
"""The parent of a rank (None: it is the root), and its children, farthest first."""


def tree(rank: int, size: int, root: int = 0, modules: Sequence[int] | None = None) -> Branch:
    """A rank's place; `modules` of all ranks, None: they do not matter."""
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
    """Its place in the tree of these ranks, the first of them at the root."""
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
    """Every rank tells its parent once its children have told it; then the news of all having
    come goes down again."""

    def __init__(self, ranks: Ranks, request: Request) -> None:
        """`request` is completed when all ranks are known to have begun."""
        self._ranks = ranks
        self._request = request
        self._up = ranks.first_tag()
        self._parent, self._children = ranks.tree()
        self._stages = iter((self._hear_children, self._ask_parent, self._tell_children))
        self._left = 0  # requests of this stage
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin the first stage, or the next one that has anything to do."""
        for stage in self._stages:
            requests = stage()
            if requests:
                self._left = len(requests)
                for request in requests:
                    request._on_done(self._ended)
                return
        self._request._complete(None)

    def _hear_children(self) -> list[Request]:
        return [self._ranks.irecv(bytearray(), child, self._up) for child in self._children]

    def _ask_parent(self) -> list[Request]:
        if self._parent is None:
            return []
        answer = self._ranks.irecv(bytearray(), self._parent, self._up + 1)
        return [answer, self._ranks.isend(b"", self._parent, self._up)]

    def _tell_children(self) -> list[Request]:
        return [self._ranks.isend(b"", child, self._up + 1) for child in self._children]

    def _ended(self, request: Request) -> None:
        try:
            request.result()
            with self._lock:
                self._left -= 1
                last = not self._left
            if last:
                self.start()
        except Exception as error:
            self._request._fail(error)


def spread(ranks: Ranks, buf: Any, root: int) -> None:
    """What `buf` holds on the root, into `buf` of every rank."""
    tag = ranks.first_tag()
    parent, children = ranks.tree(root)
    if parent is not None:
        ranks.recv(buf, parent, tag)
    for request in [ranks.isend(buf, child, tag) for child in children]:
        request.wait()


def highest(ranks: Ranks, number: int) -> int:
    """The highest of the numbers that the ranks give, on every rank."""
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
