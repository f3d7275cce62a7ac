"""Calls of a communicator that make other communicators: of the same ranks, or of some of them.

A new communicator has context numbers of its own, on which its ranks agree (context_numbers.py). In
`create` only the members agree, by messages among themselves (meeting.py); in all other calls the
ranks of the communicator do, by collectives: the first says which rank joins what, the following
ones agree on the numbers.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from pscompy.api.c.guard import import_apart
from pscompy.api.session import Session
from pscompy.core import lib
from pscompy.errors import PscomError, shown

if TYPE_CHECKING:
    from pscompy.api.context import Context
    from pscompy.world.collectives import Collectives
    from pscompy.world.communicator import Communicator
    from pscompy.world.job import Job

ENDPOINTS_MAX = 1024
# PSP_ENDPOINTS -> number of endpoints that share a worker
_SHARERS = {"dynamic": 1, "shared": 2, "single": 1 << 20}
_LARGE = 1 << 40
_INT64 = range(-(1 << 63), 1 << 63)
_CHOICE = struct.Struct("<?qq")


class _Choice(NamedTuple):
    """What a rank gives to `split`."""

    joins: bool
    color: int
    key: int


class DerivedCalls:
    """All calls but `create` are collective: all ranks call the collective operations of one
    communicator in the same order. Threads that make communicators at once use different ones."""

    if TYPE_CHECKING:
        _collectives: Collectives
        _context: Context
        _endpoint: str
        _job: Job
        _members: Sequence[int]
        rank: int
        size: int

        @property
        def module(self) -> int: ...

        @property
        def session(self) -> Session: ...

        def _check(self) -> None: ...

        def _derive(
            self, members: Sequence[int], number: int, job: Job | None = None, endpoint: str = ""
        ) -> Communicator: ...

    def dup(self) -> Communicator:
        """Return a communicator of the same ranks with a context of its own. A library should use
        one, so that its messages match no receive of the program, and `close` it in the end.
        Collective."""
        self._check()
        self._collectives.maximum(0)  # all ranks have come
        return self._derive(self._members, self._agree_on_contexts())

    def create(self, ranks: Sequence[int], timeout: float | None = None) -> Communicator:
        """Return a communicator of these ranks, in this order. Only they call it: all with the same
        ranks, and in the same order if they make several. No other rank is needed, so it works
        after a rank has died, too.

        IndexError if there is no such rank. ValueError if a rank is there twice, if this rank is
        missing, or if members give different ranks. After `timeout` seconds without a member that
        is needed, Timeout. An exception on one member, such as PeerLost, is raised on all.
        """
        self._check()
        members = self._as_ranks(ranks)
        import_apart("pscompy.world.meeting")
        from pscompy.world.meeting import Meeting

        with Meeting(self._collectives, members, timeout) as meeting:
            meeting.maximum(0)  # all members have come
            number = self._job.contexts.agree(self._context.number, meeting.maximum)
        return self._derive([self._members[rank] for rank in members], number)

    def _as_ranks(self, ranks: Sequence[int]) -> list[int]:
        """Return the ranks that are given to `create`."""
        found = [operator.index(rank) for rank in ranks]
        for rank in found:
            if rank not in range(self.size):
                raise IndexError(f"create: no rank {rank}: the ranks are 0 to {self.size - 1}")
        if len(set(found)) < len(found):
            raise ValueError(f"create: a rank is twice in {found}")
        if self.rank not in found:
            raise ValueError(
                f"create: only the ranks that are given call it, and {found} are not rank"
                f" {self.rank}"
            )
        return found

    # ---- parts ----

    def split(self, color: SupportsIndex | None, key: SupportsIndex = 0) -> Communicator | None:
        """Return a communicator of the ranks that give the same color, in the order of their keys,
        and of their ranks if keys are equal. A rank that gives None gets None. Collective."""
        key = _as_int64("key", key)
        if color is None:
            return self._split(_Choice(False, 0, key))
        return self._split(_Choice(True, _as_int64("color", color), key))

    def split_by_node(self) -> Communicator:
        """Return a communicator of the ranks that run on this rank's node (under the same kernel,
        as ranks that share memory do), in the same order. Collective."""
        host = blake2b(self.session._identity.host.encode(), digest_size=8).digest()
        return self._split_by(int.from_bytes(host, "little", signed=True))

    def split_by_module(self) -> Communicator:
        """Return a communicator of the ranks in this rank's module, in the same order.
        Collective."""
        return self._split_by(self.module)

    def _split_by(self, color: int) -> Communicator:
        made = self._split(_Choice(True, color, 0))
        assert made is not None
        return made

    def _split(self, mine: _Choice) -> Communicator | None:
        self._check()
        packed = self._collectives.gathered(_CHOICE.pack(*mine))
        choices = [_Choice(*_CHOICE.unpack(it)) for it in packed]
        number = self._agree_on_contexts(mine.joins)
        if not mine.joins:
            return None
        ranks = (rank for rank, it in enumerate(choices) if it[:2] == mine[:2])
        ordered = sorted(ranks, key=lambda rank: choices[rank].key)
        return self._derive([self._members[rank] for rank in ordered], number)

    def _agree_on_contexts(self, use: bool = True) -> int:
        """Return the first of two context numbers, the same on all ranks, that no rank uses yet.
        Called after a collective that ends only when all ranks have come."""
        return self._job.contexts.agree(self._context.number, self._collectives.maximum, use)

    # ---- endpoints ----

    def endpoints(self, number: int) -> list[Communicator]:
        """Return `number` communicators of the same ranks, for as many threads or event loops.
        Endpoint k exchanges messages with endpoint k of the other ranks. Collective: all ranks call
        it in the same order, with the same number.

        PSP_ENDPOINTS says which endpoints share a worker. A worker has its own lock, progress,
        receives and connections. With "dynamic" no endpoints share one, so that no thread waits for
        another; with "shared" two endpoints share one; with "single" all endpoints share that of
        this communicator. `endpoint.session` is the session of an endpoint's worker. It is closed
        with this communicator's session, or earlier by `endpoint.session.close()`.

        `ValueError` if the ranks disagree about `number` or PSP_ENDPOINTS. If one rank fails, say
        for want of descriptors, all raise, and no endpoint is left.
        """
        number = operator.index(number)
        if not 0 < number <= ENDPOINTS_MAX:
            raise ValueError(
                f"a communicator has 1 to {ENDPOINTS_MAX} endpoints, not {shown(number)}"
            )
        sharers = _SHARERS[self.session.config["ENDPOINTS"]]
        self._require_same(number * _SHARERS["single"] + sharers)
        name = self._agree_on_contexts()
        origin = _origin_of(name, self._endpoint)
        if sharers > 2:
            contexts = [name, *(self._agree_on_contexts() for _ in range(1, number))]
            return [
                self._derive(self._members, context, endpoint=f"endpoint {k}{origin}")
                for k, context in enumerate(contexts)
            ]
        made: list[Communicator] = []
        error: Exception | None = None
        try:
            for first in range(0, number, sharers):
                users = range(first, min(first + sharers, number))
                job = self._job.sibling(f"{name}.{first}", _worker_of(users) + origin)
                for k in users:
                    context = job.contexts.take()
                    endpoint = f"endpoint {k}{origin}"
                    made.append(self._derive(self._members, context, job, endpoint))
        except (PscomError, OSError) as failed:
            error = failed
        # From here on peers may connect to the workers of the new endpoints.
        if self._collectives.maximum(int(error is not None)):
            for it in made:
                it.session.close()
            raise error or PscomError("another rank could not make its endpoints")
        return made

    def _require_same(self, here: int) -> None:
        self._check()
        lowest = _LARGE - self._collectives.maximum(_LARGE - here)
        if self._collectives.maximum(here) != lowest:
            raise ValueError("the ranks disagree about the number of endpoints, or PSP_ENDPOINTS")


def _as_int64(name: str, value: Any) -> int:
    """Return the color or the key that a rank gives to `split`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"split: {name} is an integer, not {shown(value)}") from None
    if number not in _INT64:
        raise OverflowError(f"split: {name} has 64 bits, and {shown(value)} has more")
    return number


def _worker_of(users: Sequence[int]) -> str:
    return f"endpoint {users[0]}" if len(users) == 1 else f"endpoints {users[0]} and {users[-1]}"


def _origin_of(number: int, endpoint: str) -> str:
    """Return the words that distinguish the endpoints of one call of `endpoints` from those of
    other calls; "" for a World's first call. `number` is the context number on which the ranks
    agreed in this call, `endpoint` is the name of the endpoint on which it was made, or ""."""
    taken: int = (number - lib.PSC_CONTEXT_USER) // 2
    return f" of set {taken}" * (taken > 1) + f" of {endpoint}" * bool(endpoint)
