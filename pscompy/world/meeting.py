"""Meeting: some ranks of a communicator agree, by messages among themselves, on another one.

No rank outside takes part, and no collective of the communicator is needed, so survivors can meet
after a rank has died. The lowest member collects a bid from each other one and answers with the
highest. Their messages are objects in the context of the communicator's collectives, with tags that
no collective uses.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pscompy.api.timeouts import as_seconds
from pscompy.errors import PscomError, Timeout

if TYPE_CHECKING:
    from pscompy.world.collectives import Collectives

_TAGS = 1 << 30  # the first tag of meetings, and how many tags they have


class _Message(NamedTuple):
    members: tuple[int, ...]  # the ranks that the sender has given to `create`
    number: int = 0  # a bid, or the highest one
    failure: Exception | None = None  # the exception that has ended the meeting for the sender


class Meeting:
    """One call of `create` on this rank. An exception that leaves its `with` block is raised on the
    other members, too."""

    def __init__(self, ranks: Collectives, members: Sequence[int], timeout: float | None) -> None:
        """`members` are ranks of the communicator, this one included."""
        seconds = as_seconds(timeout)
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._ranks = ranks
        self._members = tuple(members)
        lowest = min(members)
        self._leads = ranks.rank == lowest
        # The ranks that this one exchanges messages with.
        self._peers = [it for it in members if it != lowest] if self._leads else [lowest]
        # A new tag for each meeting of two ranks: no later meeting receives messages of one that
        # has failed.
        ranks.meetings.update(self._peers)
        self._tags = {it: _TAGS + ranks.meetings[it] % _TAGS for it in self._peers}

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        failure = error if isinstance(error, (PscomError, ValueError)) else None
        if failure is None:
            failure = PscomError(f"create: rank {self._ranks.rank} has raised {error!r}")
        self._send_all(_Message(self._members, failure=failure))

    def maximum(self, number: int) -> int:
        """Return the highest of the members' numbers, on every member."""
        if self._leads:
            number = max([number, *(self._receive(it).number for it in self._peers)])
            self._send_all(_Message(self._members, number))
            return number
        (lowest,) = self._peers
        self._send(lowest, _Message(self._members, number))
        return self._receive(lowest).number

    def _send(self, rank: int, message: _Message) -> None:
        self._ranks.connection(rank).isend_obj(tuple(message), self._tags[rank])

    def _send_all(self, message: _Message) -> None:
        """Send a message to the ranks that can be reached. If one cannot, its next message to this
        rank, or the first one in the new communicator, reports that."""
        for rank in self._peers:
            with suppress(PscomError):
                self._send(rank, message)

    def _receive(self, rank: int) -> _Message:
        message = self._arrived(rank)
        if message.failure is not None:
            self._peers.remove(rank)  # it knows of the failure
            raise message.failure
        if message.members != self._members:
            raise ValueError(
                f"create: rank {self._ranks.rank} gives the ranks {list(self._members)}, and rank"
                f" {rank} gives {list(message.members)}"
            )
        return message

    def _arrived(self, rank: int) -> _Message:
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            return _Message(*self._ranks.connection(rank).recv_obj(self._tags[rank], left))
        except Timeout:
            raise Timeout(
                f"create: rank {rank} has not called it in time, or has waited for another rank"
            ) from None
