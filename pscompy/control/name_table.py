"""The names of connected sessions, which are unique within a job."""

from __future__ import annotations

from collections import Counter

from pscompy.control.handshake.identity import Identity


class Names:
    """The names of this session and of all sessions that have a precon with it."""

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
