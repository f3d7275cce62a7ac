"""Departures: ends the connections of a World to ranks that have ended or left, as the launcher
reports them.

A rank that has not connected to such a rank would otherwise try to for seconds, or wait for its
message for ever. Connections that are up are left to their transports, which deliver first what has
arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pscompy.world.bootstrap.ends import EVERY

if TYPE_CHECKING:
    from pscompy.control.manager import Control
    from pscompy.world.bootstrap.ends import End
    from pscompy.world.bootstrap.launcher import Bootstrap


class Departures:
    """Passes ends of ranks on to the control plane of World number `world`; a `Follower`."""

    def __init__(self, control: Control, world: int) -> None:
        self._control = control
        self._rank = control.here.rank
        self._world = world

    def follow(self, bootstrap: Bootstrap) -> None:
        descriptor = bootstrap.follow(self, self._world)
        if descriptor >= 0:
            others = bootstrap.size - 1
            self._control.watch_reports(descriptor, bootstrap.read_reports, others)

    def note(self, end: End) -> None:
        if end.rank != self._rank and end.world in (EVERY, self._world):
            self._control.rank_ended(end.rank, end.error())
