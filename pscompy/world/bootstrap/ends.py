"""The ends of ranks, which the server of PMI-1 reports to the ranks that are left.

Only pscompy's own servers do (`Bootstrap.live`): `pscompy run`, and the store of rank 0. A rank
asks for the ends after the first `since` ones. The server answers when there are such, with several
ends in one line, and sends nothing more until the rank asks again, so that a rank that does not
read is never flooded.
"""

from __future__ import annotations

from typing import NamedTuple

from pscompy.errors import Closed, PeerLost, PscomError
from pscompy.world.bootstrap.pmi1_wire import WireError, pack

EVERY = -1  # in place of the number of a World: the rank's process has ended, and so all its Worlds
_LINE_ENDS = 12  # maximum number of ends in one line, which fits into LINE_MAX

Replies = list[tuple[int, bytes]]
"""Lines to send, as (rank, line)."""


class End(NamedTuple):
    """The end of a rank, or of one of its Worlds. `lost`: messages to and from the rank may be
    lost, because it has not closed its connections; `text` goes on after the rank's name."""

    rank: int
    world: int
    lost: bool
    text: str

    def error(self) -> PscomError:
        """Return the error of operations that need this rank."""
        kind = PeerLost if self.lost else Closed
        return kind(f"rank {self.rank} {self.text}", peer=f"rank {self.rank}")

    def word(self) -> str:
        return f"{self.rank}:{self.world}:{int(self.lost)}:{self.text.replace(' ', '_')}"


def of_world(rank: int, world: int, failed: bool) -> End:
    """Return the end of one World of a rank: by an exception if it has `failed`, else by
    `World.close`."""
    return End(rank, world, failed, "has left its World" + (" by an exception" if failed else ""))


def of_process(rank: int, status: int | None, finalized: bool) -> End:
    """Return the end of a rank's process. `status` is its exit code, the negative number of a
    signal, or None if it is not known; `finalized`: the rank had signed off before."""
    how = "" if not status else f" (signal {-status})" if status < 0 else f" (exit code {status})"
    return End(rank, EVERY, bool(status) or not finalized, f"has ended{how}")


def unpack(words: str) -> list[End]:
    """Return the ends in a line. Raises `WireError` if they are malformed."""
    return [_unpack_one(word) for word in words.split(",")]


def _unpack_one(word: str) -> End:
    try:
        rank, world, lost, text = word.split(":")
        return End(int(rank), int(world), lost == "1", text.replace("_", " "))
    except ValueError as error:
        raise WireError(f"{word[:40]!r} is no end of a rank") from error


class Ends:
    """The server's list of all ends, and of the ranks that wait for the next one."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._watchers: dict[int, int] = {}  # rank -> number of the ends that it knows

    def add(self, end: End) -> Replies:
        self._words.append(end.word())
        watchers, self._watchers = self._watchers, {}
        return [it for rank, since in watchers.items() for it in self.watch(rank, since)]

    def watch(self, rank: int, since: int) -> Replies:
        """Return the ends after the first `since` ones, or let the rank wait for them."""
        words = self._words[since : since + _LINE_ENDS]
        if not words:
            self._watchers[rank] = since
            return []
        return [(rank, pack("ends", until=since + len(words), list=",".join(words)))]

    def forget(self, rank: int) -> None:
        """Report nothing more to this rank until it asks again."""
        self._watchers.pop(rank, None)
