"""Ranks: messages between some ranks of a job, in a context (see `Context`) of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pscompy.api.c import _binding
from pscompy.api.connection import Connection
from pscompy.api.context import Context
from pscompy.core import lib
from pscompy.errors import Closed, PeerLost
from pscompy.world.job import Job
from pscompy.world.serving import Serving

if TYPE_CHECKING:
    from pscompy.parcel.calls import ActionPeer


class Ranks(_binding.Communicator):
    """`members` are ranks of the job, that of this process included; the position of a rank in
    `members` is its number here. `number` is the number of the context."""

    def __init__(self, job: Job, members: Sequence[int], number: int) -> None:
        session = job.session
        self._job = job
        self._members = members
        self._rank = members.index(job.rank)
        self._context: Context = Context(
            *(
                session._binding,
                session._control,
                number,
                len(members),
                self._action_peer_of,
                session,
            ),
            Serving(job.bootstrap, partial(job.key_of_service, number)),
        )
        self._bind(session._binding, len(members), number)
        if members != range(job.size):
            self._renumber(members)

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks, which `len()` returns, too."""
        return len(self._members)

    def _peer(self, rank: int) -> Connection:
        """Make the connection to a rank. Called once for each rank, at its first use."""
        return Connection(self._context, self._job.record(self._members[rank]))

    def _exception(self, status: int, nbytes: int, /) -> BaseException:
        """Return the exception for a status of an operation that names no rank."""
        if status == lib.PSC_ERR_CLOSED and self._context.closed:
            return Closed(f"{self!r} was closed")
        made = super()._exception(status, nbytes)
        if status == lib.PSC_ERR_PEER_LOST and self._job.session._control.is_last:
            return PeerLost(f"{self!r}: all other ranks have ended or left their World")
        return made

    def _action_peer_of(self, rank: int) -> ActionPeer:
        """Return the objects that carry calls of actions to and from a rank, and their answers."""
        peer: Connection = self.connection(rank)
        return peer._action_peer()
