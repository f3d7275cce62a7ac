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
        seconds = as_seconds(timeout)
        self._ranks = ranks
        self._name = name
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def _tag(self) -> int:
        return next(self._ranks.object_tags) % _TAGS

    def _end(self, request: Request[Any]) -> Any:
        if self._deadline is None:
            return request.wait()
        return request.wait(max(0.0, self._deadline - time.monotonic()))

    def _send(self, obj: Any, rank: int, tag: int) -> Request[None]:
        connection: Connection = self._ranks.connection(rank)
        return connection.isend_obj(obj, tag)

    def _recv(self, rank: int, tag: int) -> Request[Any]:
        connection: Connection = self._ranks.connection(rank)
        return connection.irecv_obj(tag)

    def bcast(self, obj: Any, root: int) -> Any:
        """Each rank passes the object on to those that follow it in the tree by powers of two."""
        tag, size = self._tag(), self._ranks.size
        number = (self._ranks.rank - root) % size
        reach = 1
        while reach < size and not number & reach:
            reach *= 2
        if number:
            obj = self._end(self._recv((number - reach + root) % size, tag))
        sent = []
        while (reach := reach // 2) > 0:
            if number + reach < size:
                sent.append(self._send(obj, (number + reach + root) % size, tag))
        for request in sent:
            self._end(request)
        return obj

    def gather(self, obj: Any, root: int) -> list[Any] | None:
        tag, rank = self._tag(), self._ranks.rank
        if rank != root:
            self._end(self._send(obj, root, tag))
            return None
        others = range(self._ranks.size)
        requests = {it: self._recv(it, tag) for it in others if it != root}
        return [obj if it == root else self._end(requests[it]) for it in others]

    def scatter(self, objs: Sequence[Any] | None, root: int) -> Any:
        tag, rank = self._tag(), self._ranks.rank
        if rank != root:
            return self._end(self._recv(root, tag))
        given = self._one_for_each(objs)
        sent = [self._send(it, other, tag) for other, it in enumerate(given) if other != root]
        for request in sent:
            self._end(request)
        return given[root]

    def alltoall(self, objs: Sequence[Any]) -> list[Any]:
        tag, rank, size = self._tag(), self._ranks.rank, self._ranks.size
        given = self._one_for_each(objs)
        others = [(rank + i) % size for i in range(1, size)]
        requests = {it: self._recv(it, tag) for it in others}
        sent = [self._send(given[it], it, tag) for it in others]
        found = [given[rank] if it == rank else self._end(requests[it]) for it in range(size)]
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
