"""Bootstrap: the interface to a launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pscompy.world.bootstrap.ends import End


class Follower(Protocol):
    """Is told of the ends of other ranks."""

    def note(self, end: End) -> None:
        """Take note of an end. Called in any thread, which must not be kept waiting."""


class Bootstrap(Protocol):
    """The launcher, as one rank of a job sees it. Safe for several threads.

    `PeerLost` if the launcher is gone, `ProtocolError` if its answer is malformed.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def job_id(self) -> str:
        """A name that all ranks of this job share and no other job has."""

    @property
    def live(self) -> bool:
        """Whether values can be replaced, and are seen at once, without a barrier."""

    def put(self, key: str, value: str) -> None:
        """Publish a value: ASCII without white space, of any length.

        The other ranks can get it after the next `barrier`.
        """

    def get(self, key: str, rank: int) -> str:
        """Return the value that `rank` published under `key`; `KeyError` if it published none."""

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until all ranks have called this, at most `timeout` seconds.

        `Timeout` if ranks are missing; the next call continues the same barrier. `PeerLost` if it
        cannot complete because a rank has left.
        """

    def follow(self, follower: Follower, world: int) -> int:
        """Tell `follower`, as long as it lives, of ranks that have ended, or have left their World
        number `world`. Returns a descriptor, which the caller closes: whenever it is readable,
        `read_reports` must be called. Returns -1 if the launcher reports no ends."""

    def read_reports(self) -> bool:
        """Handle the reports that have arrived; see `follow`. Returns False if the launcher is
        gone."""

    def leave(self, world: int, failed: bool, blames: int | None = None) -> None:
        """Tell the launcher that this rank leaves World number `world`: by an exception if it has
        `failed`, for want of the rank that it `blames`. Returns when the launcher knows, or after
        two seconds."""

    def finalize(self, blames: int | None = None) -> None:
        """Tell the launcher that this rank ends, perhaps for want of the rank that it `blames`. No
        other call may follow."""

    def abort(self, code: int) -> None:
        """Ask the launcher to end all ranks; returns before they have ended."""


class Unreported:
    """The part of a `Bootstrap` whose launcher reports no ends of ranks."""

    def follow(self, follower: Follower, world: int) -> int:
        return -1

    def read_reports(self) -> bool:
        return False

    def leave(self, world: int, failed: bool, blames: int | None = None) -> None:
        pass
