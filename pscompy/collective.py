"""What all ranks of a World do together, as messages of its collective context.

All of it goes up and down one binomial tree with rank 0 at its root, so that n - 1 connections
serve n ranks, and no rank has more than log2(n) of them. No thread is needed: the callbacks of
one stage's requests begin the next stage.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from pscompy import _hot
from pscompy.connection import Connection
from pscompy.request import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pscompy.world import World


_TAGS = 2  # of one operation: up, and down
_OPERATIONS = 1 << 30  # then their numbers begin again


class Ranks(_hot.World):
    """The ranks of a World in the context of its collective operations."""

    def __init__(self, world: World, context: int) -> None:
        self._world = world
        self._context = context
        self._operations = itertools.count()
        self.rank, self.size = world.rank, world.size
        self._bind(world._hot, world.size, context)

    def first_tag(self) -> int:
        """Of the next operation; the same on all ranks, which begin them in the same order."""
        return next(self._operations) % _OPERATIONS * _TAGS

    def _peer(self, rank: int) -> Connection:
        base = self._world[rank]
        return Connection(base._worker, base._control, base._record, self._context)


def tree(rank: int, size: int) -> tuple[int | None, list[int]]:
    """The parent of a rank (None: it is the root), and its children."""
    reach = 1 << rank.bit_length()
    parent = rank - (reach >> 1) if rank else None
    children = []
    while rank + reach < size:
        children.append(rank + reach)
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
        self._parent, self._children = tree(ranks.rank, ranks.size)
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
                    request.add_done_callback(self._ended)
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


def broadcast(ranks: Ranks, choose: Callable[[], int]) -> int:
    """The number that rank 0 chooses, on every rank.

    An error of `choose` is raised on rank 0 alone.
    """
    tag = ranks.first_tag()
    parent, children = tree(ranks.rank, ranks.size)
    if parent is None:
        number = choose()
    else:
        number = int.from_bytes(ranks.recv(source=parent, tag=tag), "little")
    for child in children:
        ranks.send(number.to_bytes(8, "little"), child, tag)
    return number
