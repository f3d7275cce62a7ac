"""Bootstrap: the interface to a launcher."""

from __future__ import annotations

from typing import Protocol


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

    def finalize(self) -> None:
        """Tell the launcher that this rank ends normally. No other call may follow."""

    def abort(self, code: int) -> None:
        """Ask the launcher to end all ranks; returns before they have ended."""
