"""Serving: which ranks of a communicator accept calls of actions, as they publish at the launcher.

Only under a launcher whose values are seen at once (`Bootstrap.live`) do ranks learn of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pscompy.errors import PscomError
from pscompy.world.bootstrap.launcher import Bootstrap


class Serving:
    """The ranks of one communicator that accept calls; a `Presence` of its Service. All ranks are
    those of the job, as in `Links.source`. `key` returns the key of a rank at the launcher."""

    def __init__(self, bootstrap: Bootstrap, key: Callable[[int], str]) -> None:
        self._bootstrap = bootstrap
        self._key = key

    def announce(self) -> None:
        if self._bootstrap.live:
            with suppress(PscomError):  # the launcher may be gone
                self._bootstrap.put(self._key(self._bootstrap.rank), "serves")

    def accepts(self, rank: int) -> bool | None:
        if not self._bootstrap.live:
            return None
        try:
            return bool(self._bootstrap.get(self._key(rank), rank))
        except KeyError:
            return False
        except PscomError:
            return None
