"""The ranks of a job that have ended or have left their World, as the launcher reports them.

Connecting to such a rank is given up for good, and what waits for it fails at once, with the
launcher's reason. Connections that are up, or whose lanes come up, are left alone: they notice the
end themselves, after they have delivered what the rank had sent. When all other ranks have ended,
the receives from any source on which the program waits fail, too, because nobody will send.
"""

from __future__ import annotations

from collections.abc import Callable

from pscompy.control.conn import Conn, ConnState
from pscompy.control.peer import Record
from pscompy.control.phases import Phase
from pscompy.control.worker import Item, Worker
from pscompy.core import lib
from pscompy.errors import PeerLost, PscomError

LOOK_PAUSE = 0.3  # seconds between two looks at receives from any source, if no other rank is left
_UNCONNECTED = (Phase.LAZY, Phase.DIALING, Phase.ASKING)
_ENDED = (ConnState.CLOSED, ConnState.FAILED)


class EndedRanks:
    """The ended ranks, as one worker of a session knows them. Used on the control thread only."""

    def __init__(
        self,
        worker: Worker,
        follow: Callable[[int], object],
        tasks: Callable[[], list[int]],
    ) -> None:
        """`follow` follows a change of a connection's state in the core. `tasks` returns the
        addresses of the core's requests that asyncio tasks wait for."""
        self._worker = worker
        self._follow = follow
        self._tasks = tasks
        self._reasons: dict[int, PscomError] = {}
        self._records: list[Record] = []
        self._hopeless: set[int] = set()  # receives from any source that the last look has found

    def add(self, record: Record, reason: PscomError, calls: bool) -> None:
        """Note that a rank has ended, the peer of this record, which is registered. `calls`: this
        process calls the rank (see node_connect.py), which has not answered."""
        if record.rank not in self._reasons:
            self._records.append(record)
        reason = self._reasons.setdefault(record.rank, reason)
        if record.phase is Phase.CLOSED:
            record.error = reason
        elif calls or record.phase in _UNCONNECTED:
            self.lose(record)

    def lose(self, record: Record) -> bool:
        """End the connection, which is registered, if its rank has ended. Returns whether it
        has."""
        reason = self._reasons.get(record.rank)
        if reason is None:
            return False
        record.error = reason
        lost = isinstance(reason, PeerLost)
        record.conn.fail(Conn.ERR_PEER_LOST if lost else Conn.ERR_CLOSED)
        self._follow(record.id)
        return True

    def end_hopeless(self) -> None:
        """End the receives from any source on which two looks have found the program waiting,
        because all ranks have ended but this one, which may send to itself. Nothing is ended while
        a connection may still deliver something."""
        found: set[int] = set()
        if all(it.conn.state in _ENDED for it in self._records):
            found = _unsourced(self._worker.items(set(self._tasks())))
        for id in found & self._hopeless:
            self._worker.end_receive(id, Conn.ERR_PEER_LOST)
        self._hopeless = found


def _unsourced(items: list[Item]) -> set[int]:
    """Return the ids of the receives and probes from any source that no message has matched, and
    that are waited for. The receive of an object counts while any event is awaited: Python
    completes an event with the object."""
    event = any(it.kind == lib.PSC_ITEM_EVENT and it.awaited for it in items)
    return {
        it.id
        for it in items
        if it.kind in (lib.PSC_ITEM_RECV, lib.PSC_ITEM_PROBE) and not it.conn
        if it.awaited or (event and _is_object(it))
    }


def _is_object(item: Item) -> bool:
    return bool(item.context & ~lib.PSC_CONTEXT_NUMBER == lib.PSC_CONTEXT_OBJECTS)
