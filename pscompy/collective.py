"""What all ranks of a World do together, as messages of its collective context.

Both patterns use the same pairs of ranks, whose distance is a power of two,
so that few connections serve all of them. No thread is needed: the callbacks
of one round's requests begin the next round.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pscompy import _hot
from pscompy.connection import Connection
from pscompy.request import Request

if TYPE_CHECKING:
    from pscompy.world import World

_ROUNDS = 32  # tags of one operation: one per round
_OPERATIONS = 1 << 26  # then their numbers begin again


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
        return next(self._operations) % _OPERATIONS * _ROUNDS

    def _peer(self, rank: int) -> Connection:
        base = self._world[rank]
        return Connection(base._worker, base._control, base._record, self._context)


class Barrier:
    """Dissemination: in round k every rank hears of twice as many others as before."""

    def __init__(self, ranks: Ranks, request: Request) -> None:
        """`request` is completed when all ranks are known to have begun."""
        self._ranks = ranks
        self._request = request
        self._tag = ranks.first_tag()
        self._round = 0
        self._left = 0  # requests of this round
        self._lock = threading.Lock()

    def start(self) -> None:
        distance = 1 << self._round
        size, rank = self._ranks.size, self._ranks.rank
        if distance >= size:
            self._request._complete(None)
            return
        tag = self._tag + self._round
        self._left = 2
        received = self._ranks.irecv(bytearray(), (rank - distance) % size, tag)
        sent = self._ranks.isend(b"", (rank + distance) % size, tag)
        received.add_done_callback(self._ended)
        sent.add_done_callback(self._ended)

    def _ended(self, request: Request) -> None:
        try:
            request.result()
            with self._lock:
                self._left -= 1
                last = not self._left
            if last:
                self._round += 1
                self.start()
        except Exception as error:
            self._request._fail(error)


def broadcast(ranks: Ranks, choose: Callable[[], int]) -> int:
    """The number that rank 0 chooses, on every rank; a binomial tree.

    An error of `choose` is raised on rank 0 alone.
    """
    tag = ranks.first_tag()
    if ranks.rank == 0:
        number = choose()
        reach = 1
    else:
        reach = 1 << ranks.rank.bit_length()
        source = ranks.rank - (reach >> 1)
        number = int.from_bytes(ranks.recv(source=source, tag=tag), "little")
    while ranks.rank + reach < ranks.size:
        ranks.send(number.to_bytes(8, "little"), ranks.rank + reach, tag)
        reach *= 2
    return number
