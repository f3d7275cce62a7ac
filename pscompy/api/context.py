"""Context: traffic of a session that no receive of another context matches.

A session has a context for its plain connections, a communicator one for its ranks. The connections
of a context share the attributes of this object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pscompy.api.c import _binding
from pscompy.api.c.guard import guard
from pscompy.control.manager import Control
from pscompy.parcel import door

if TYPE_CHECKING:
    from pscompy.parcel.door import ActionPeer, Presence, Service


class Context:
    """A context number of a session, with the service that runs the actions of its peers."""

    __slots__ = (
        "_find_action_peer",
        "_presence",
        "_service",
        "_session",
        "_size",
        "closed",
        "control",
        "number",
        "worker",
    )

    def __init__(
        self,
        worker: _binding.Worker,
        control: Control,
        number: int,
        size: int,
        find_action_peer: Callable[[Any], ActionPeer | None],
        session: object,
        presence: Presence | None = None,
    ) -> None:
        """`size` is the number of ranks, 0 for plain connections. `find_action_peer` returns the
        ActionPeer of the source that a Status names, or None if that peer is gone. `session` lives
        as long as a connection of the context. `presence` knows which ranks accept calls of
        actions."""
        self._session = session
        self.worker = worker
        self.control = control
        self.number = number
        self._size = size
        self._find_action_peer = find_action_peer
        self._presence = presence
        self._service: Service | None = None
        self.closed = False  # whether the communicator of this context was closed

    def service(self) -> Service:
        """Return the service of this context, made at its first use."""
        if self._service is None:
            made = self._make_service()
            with guard:
                if self._service is None:  # no other thread has made one meanwhile
                    self._service = made
        return self._service

    def _make_service(self) -> Service:
        config, name = self.control.config, self.control.here.name
        find = self._find_action_peer
        return door.make_service(
            self.worker, self._size, self.number, find, config, name, self._presence
        )
