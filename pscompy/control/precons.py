"""The precons of a session (TCP connections that carry handshakes): which are open, the names they
claim, the descriptors they need.

A session's name belongs to it as long as one of its precons lasts. Precons whose lanes are coming
up will take descriptors, so that many of them at once must leave enough.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from pscompy.control import descriptors
from pscompy.control.event_loop import ControlThread
from pscompy.control.handshake.identity import Identity
from pscompy.control.negotiation import Negotiation
from pscompy.control.peer import Record

LOOK_SECONDS = 0.1  # seconds after which the number of free descriptors is looked up again


class Names:
    """The names of this session and of all sessions that have a precon with it, which are unique
    within a job."""

    def __init__(self, here: Identity) -> None:
        self._here = here
        self._owners: dict[tuple[str, str], bytes] = {(here.job, here.name): here.uid}
        self._uses: Counter[bytes] = Counter({here.uid: 1})

    def conflict(self, there: Identity) -> str | None:
        """Return the conflict if another session has this name already, or None."""
        owner = self._owners.get((there.job, there.name))
        if owner is None or owner == there.uid:
            return None
        which = "this one" if owner == self._here.uid else "one connected to it"
        return f"the name {there.name!r} is in use: by {which} at {self._here.name}"

    def add(self, there: Identity) -> None:
        self._owners[there.job, there.name] = there.uid
        self._uses[there.uid] += 1

    def remove(self, there: Identity) -> None:
        self._uses[there.uid] -= 1
        if self._uses[there.uid] <= 0:
            del self._uses[there.uid]
            self._owners.pop((there.job, there.name), None)


class Precons:
    """All negotiations of a session whose precon is open."""

    def __init__(self, thread: ControlThread, here: Identity) -> None:
        self._thread = thread
        self._names = Names(here)
        # negotiation whose precon is open -> identity whose name `claim` has reserved for it, or
        # None
        self._open: dict[Negotiation[Record], Identity | None] = {}
        # negotiations whose lanes are coming up, and will open descriptors
        self._coming_up: set[Negotiation[Record]] = set()
        # number of further precons for which descriptors were free when `_look` was called last
        self._spare = 0
        self._looked = 0.0  # when the free descriptors were looked up last

    def __iter__(self) -> Iterator[Negotiation[Record]]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def add(self, negotiation: Negotiation[Record]) -> None:
        """Keep the negotiation until its precon is closed."""
        self._open[negotiation] = None
        negotiation.precon.on_close.append(lambda precon: self._remove(negotiation))

    def claim(self, negotiation: Negotiation[Record], there: Identity) -> str | None:
        """Reserve the peer's name for this negotiation as long as its precon lasts. Returns the
        conflict if another session has that name."""
        conflict = self._names.conflict(there)
        if conflict is None:
            self._names.add(there)
            self._open[negotiation] = there
        return conflict

    def has_room_for(self, negotiation: Negotiation[Record]) -> bool:
        """Return whether descriptors are left for the lanes of `negotiation`, and for all others
        that are coming up."""
        self._coming_up.add(negotiation)
        if self._spare > 0 and time.monotonic() - self._looked < LOOK_SECONDS:
            self._spare -= 1
            return True
        return self._look(len(self._coming_up))

    def _look(self, precons: int) -> bool:
        """Look for descriptors for twice as many precons as are coming up. What is found beyond
        these is for the next precons, which need no look: looking for each of n may open n²
        descriptors."""
        self._looked = time.monotonic()
        found = descriptors.available(descriptors.CONNECTION * 2 * precons)
        self._spare = max(0, found // descriptors.CONNECTION - precons)
        return found >= descriptors.CONNECTION * precons

    def lanes_are_up(self, negotiation: Negotiation[Record]) -> None:
        """Note that the lanes of `negotiation` are up, and so have opened all descriptors that they
        need."""
        self._coming_up.discard(negotiation)

    def break_off_all(self) -> None:
        for negotiation in self:
            if not negotiation.precon.closed:
                negotiation.break_off()

    def forget(self) -> None:
        """In the child after a fork: close the descriptors; the parent's precons go on."""
        for negotiation in self:
            negotiation.precon.forget()

    def _remove(self, negotiation: Negotiation[Record]) -> None:
        claimed = self._open.pop(negotiation, None)
        self._coming_up.discard(negotiation)
        if claimed is not None:
            self._names.remove(claimed)
        self._thread.call(negotiation.dissolve)  # runs after the precon's last event was delivered
