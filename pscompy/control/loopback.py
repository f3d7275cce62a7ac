"""A session's connection with itself: one lane of a transport that can do that, without a precon
precon."""

from __future__ import annotations

import os

from pscompy.control import selection
from pscompy.control.connections import Connections
from pscompy.control.factory import LaneFactory
from pscompy.control.handshake.auth import TOKEN_SIZE
from pscompy.control.lane import ROLE_SELF, Lane
from pscompy.control.peer import Record
from pscompy.control.phases import Phase, PhaseEvent
from pscompy.errors import ConnectError


def connect_self(connections: Connections, factory: LaneFactory, record: Record) -> None:
    """Connect over the first transport that connects a session with itself."""
    reasons = {}
    for option in selection.ordered(factory.worker.transports.options):
        reason = selection.why_not_self(option)
        if reason is None:
            lane = factory.worker.create_lane(option)
            record.peer = factory.here
            connections.step(record, PhaseEvent.TAKE)
            _connect(connections, record, lane)
            return
        reasons[option.name] = f"{reason} (here)"
    error = ConnectError(
        "no transport connects this process with itself", peer=record.name, candidates=reasons
    )
    connections.give_up(record, error)


def _connect(connections: Connections, record: Record, lane: Lane) -> None:
    name = lane.option.name

    def on_change() -> None:
        if lane.up and record.phase is Phase.NEGOTIATING:
            connections.install(record, [lane], (name,), {})
        elif lane.failed and record.phase is Phase.NEGOTIATING:
            error = ConnectError(lane.reason, candidates={name: f"{lane.reason} (here)"})
            lane.destroy()
            connections.give_up(record, error)

    lane.on_change = on_change
    lane.connect(ROLE_SELF, os.urandom(TOKEN_SIZE), lane.address())
    on_change()
