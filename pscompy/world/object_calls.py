"""Collectives of objects, by messages of send_obj: a binomial tree to all ranks, and pairs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pscompy.api.timeouts import as_seconds
from pscompy.errors import shown

if TYPE_CHECKING:
    from pscompy.api.connection import Connection
    from pscompy.api.request import Request
    from pscompy.world.collectives import Collectives

_TAGS = 1 << 30  # tags after which they begin again


class ObjectCalls:
    """One call of a rank. Its operations take the next tags, the same on all ranks."""

    def __init__(self, ranks: Collectives, name: str, timeout: float | None) -> None:
        self._ranks = ranks
        self._name = name
        self._deadline: float | None = None
        if (seconds := None if timeout is None else as_seconds(timeout)) is not None:
            self._deadline = time.monotonic() + seconds

    def _tag(self) -> int:
        return next(self._ranks.object_tags) % _TAGS

    def _end(self, request: Request[Any]) -> Any:
        return request.wait(self._left())

    def _left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _start(self, obj: Any, rank: int, tag: int) -> Request[None]:
        connection: Connection = self._ranks.connection(rank)
        return connection.isend_obj(obj, tag)

    def _send(self, obj: Any, rank: int, tag: int) -> None:
        connection: Connection = self._ranks.connection(rank)
        if self._deadline is None:
            connection.send_obj(obj, tag)
        else:  # after a Timeout the message is still to be sent
            self._end(connection.isend_obj(obj, tag))

    def _recv(self, rank: int, tag: int) -> Any:
        connection: Connection = self._ranks.connection(rank)
        if self._deadline is None:
            return connection.recv_obj(tag)
        return self._end(connection.irecv_obj(tag))

    def bcast(self, obj: Any, root: int) -> Any:
        """Each rank passes the object on to those that follow it in the tree by powers of two."""
        tag, size = self._tag(), self._ranks.size
        number = (self._ranks.rank - root) % size
        reach = 1
        while reach < size and not number & reach:
            reach *= 2
        if number:
            obj = self._recv((number - reach + root) % size, tag)
        sent = []
        while (reach := reach // 2) > 1:
            if number + reach < size:
                sent.append(self._start(obj, (number + reach + root) % size, tag))
        if reach and number + 1 < size:
            self._send(obj, (number + 1 + root) % size, tag)
        for request in sent:
            self._end(request)
        return obj

    def gather(self, obj: Any, root: int) -> list[Any] | None:
        """Each rank sends its object to the root, which receives them in the order of the ranks."""
        tag, rank = self._tag(), self._ranks.rank
        if rank != root:
            self._send(obj, root, tag)
            return None
        return [obj if it == root else self._recv(it, tag) for it in range(self._ranks.size)]

    def scatter(self, objs: Sequence[Any] | None, root: int) -> Any:
        """The root sends each rank its object, to all at once."""
        tag, rank = self._tag(), self._ranks.rank
        if rank != root:
            return self._recv(root, tag)
        given = self._one_for_each(objs)
        sent = [self._start(it, other, tag) for other, it in enumerate(given) if other != root]
        for request in sent:
            self._end(request)
        return given[root]

    def alltoall(self, objs: Sequence[Any]) -> list[Any]:
        """Each rank sends to all others at once, first to the next rank, and receives in the order
        of the ranks."""
        tag, rank, size = self._tag(), self._ranks.rank, self._ranks.size
        given = self._one_for_each(objs)
        others = [(rank + i) % size for i in range(1, size)]
        sent = [self._start(given[it], it, tag) for it in others]
        found = [given[rank] if it == rank else self._recv(it, tag) for it in range(size)]
        for request in sent:
            self._end(request)
        return found

    def _one_for_each(self, objs: Sequence[Any] | None) -> list[Any]:
        given = list(objs) if objs is not None else []
        if len(given) != self._ranks.size:
            raise ValueError(
                f"{self._name} needs {self._ranks.size} objects, one for each rank, not"
                f" {shown(objs)}"
            )
        return given
