"""Node-local connect by calls: ranks of one World on one node connect through a transport itself,
without a precon.

The core calls a rank at the first use of its connection, and answers the calls of other ranks; the
connection is up as soon as both endpoints are, and the transport watches the peer's process. So
this module takes note of calls only when the program asks about connections. If the program makes
no progress, this module does. If a call fails or takes too long, this module connects over a precon
precon, where all transports are negotiated. A datagram says that the last message of a connection
is in flight (datagrams.py).

Ranks find each other if they have the same key, which is derived from that of the job and
from everything that the identities of ranks on one node have in common.
"""

from __future__ import annotations

import logging
import math
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

from pscompy.control import selection
from pscompy.control.conn import CallState
from pscompy.control.connections import Connections
from pscompy.control.datagrams import Datagrams
from pscompy.control.event_loop import READ, ControlThread
from pscompy.control.factory import LaneFactory
from pscompy.control.handshake.auth import expand
from pscompy.control.handshake.codec import Writer
from pscompy.control.handshake.limits import UID_SIZE, VERSION_MAX
from pscompy.control.peer import FindPeer, Record
from pscompy.control.phases import Phase, PhaseEvent
from pscompy.control.selection import CAP_NODE, Option
from pscompy.errors import Closed, PscomError

logger = logging.getLogger(__name__)

# seconds in which the program may answer another rank's call (a request for a connection) by making
# progress, before this thread answers it
ANSWER_PAUSE = 0.005
# seconds in place of ANSWER_PAUSE if a thread of the program waits, and so makes progress, or if
# this thread answers
CALLERS_PAUSE = 0.02


class NodeConnect:
    """One call of or to a rank on this node (a connection made without a precon), and
    afterwards the means to notify that rank. It is the precon of the connection's record; see
    `peer.PeerPrecon`."""

    def __init__(self, node_connects: NodeConnects, record: Record) -> None:
        self.record = record
        self.looks = 0  # number of times that `_look_for_late` has found the call in flight
        self._node_connects = node_connects

    def announce_close(self) -> None:
        self._node_connects.announce_close(self)

    def leave(self) -> None:
        """End the call if it is not up yet; otherwise forget the connection, which has ended."""
        self._node_connects.drop(self)

    break_off = leave

    def close_early(self, reason: str) -> None:
        self.leave()

    def lose(self, lanes: dict[int, str]) -> None:
        """Do nothing: a call has one rail."""


class NodeConnects:
    """All calls, which connect ranks on this node without a precon. `find_peer` returns the
    record of a rank, or None if there is no such rank; `fall_back` connects over a precon. All
    methods but `call` are for the control thread."""

    def __init__(
        self,
        thread: ControlThread,
        factory: LaneFactory,
        connections: Connections,
        find_peer: FindPeer,
        fall_back: Callable[[Record], object],
    ) -> None:
        self._thread = thread
        self._worker = factory.worker
        self._transports = factory.worker.transports
        self._here = factory.here
        self._progress = factory.progress
        self._seconds = factory.candidate_seconds
        self._connections = connections
        self._find_peer = find_peer
        self._fall_back = fall_back
        self._datagrams = Datagrams(thread, factory.here.rank, self._on_closing)
        # a descriptor that is readable while a rank calls this one, or has ended
        self._callers = -1
        self._option: Option | None = None
        self._in_flight: dict[NodeConnect, None] = {}
        self._looking = False  # whether `_look_for_late` will run, to find calls that take too long

    # ---- start and end ----

    def open(self, secret: bytes) -> None:
        """Let the other ranks on this node connect to this one by calls, if the best transport to
        them reaches no other node. Called before the thread starts."""
        usable, _ = selection.candidates(self._transports.options, self._here, self._here)
        if self._here.rank < 0 or not usable or not _stays_in_node(usable[0]):
            return
        common, wire = Writer(), VERSION_MAX.to_bytes(2, "little")
        self._here._replace(uid=bytes(UID_SIZE), name="", pid=0, rank=-1).pack(common)
        key = expand(secret, b"pscompy neighbours 4", wire, common.bytes())
        params = self._connections.tuning.parameters(((usable[0].name, 0),))
        try:
            self._datagrams.open(expand(key, b"datagrams"))
            self._callers = self._worker.join(usable[0], key, self._here.rank, params)
        except (OSError, PscomError) as error:
            logger.info("ranks of this node cannot reach this rank: %s", error)
            return
        self._option = usable[0]
        self._watch_callers()

    def close(self) -> None:
        """After the thread has ended, or in the child after a fork: close the descriptor."""
        self._datagrams.close()

    # ---- calls ----

    def call(self, record: Record) -> bool:
        """Connect to the rank of this record by a call. Returns False if that is not possible. May
        be called on any thread."""
        return self._option is not None and record.conn.call()

    def calls(self, record: Record) -> bool:
        """Return whether this process calls the rank of this record, which has neither answered nor
        called itself."""
        if not isinstance(record.precon, NodeConnect) or record.phase is not Phase.NEGOTIATING:
            return False
        return record.conn.call_state()[0] == CallState.CALLING

    def end_calls(self) -> None:
        """Stop calling other ranks, refuse calls from them, and note (see `note_calls`) the calls
        that have come up until now."""
        if self._option is not None:
            self._worker.part()
            self.note_calls()

    def answer_callers(self) -> None:
        """Connect to the ranks of this node that call this one and have no connection with it. From
        now on, look for calls of both directions that take too long."""
        self._look_later()
        for rank in self._worker.new_callers():
            if not self._connections.closing:
                with suppress(Closed):
                    record = self._find(rank)
                    if record is not None:
                        self.call(record)

    def note_calls(self, changed: Sequence[int] = ()) -> None:
        """Note the calls that have begun or come up since the last time, and the outcome of the
        calls of and to the ranks `changed`."""
        for rank in (*self._worker.new_calls(), *changed):
            self._on_call(rank)

    def _on_call(self, rank: int) -> None:
        """Bring the record up to date: a call between this process and `rank`, made by either of
        the two, has begun, come up, or failed."""
        record = self._find(rank)
        if record is None:
            return
        self._connections.register(record)
        state, process = record.conn.call_state()
        if record.phase is Phase.LAZY and state != CallState.NONE:
            self._begin(record)
        connect = record.precon
        if not isinstance(connect, NodeConnect) or record.phase is not Phase.NEGOTIATING:
            return
        if state == CallState.UP:
            self._established(connect, process)
        elif state == CallState.FAILED:
            self._fail(connect, record.conn.reason)

    def _begin(self, record: Record) -> None:
        connect = record.precon = NodeConnect(self, record)
        self._in_flight[connect] = None
        record.error = None
        self._connections.step(record, PhaseEvent.TAKE)

    def _look_later(self) -> None:
        if not self._looking and math.isfinite(self._seconds):
            self._looking = True
            self._thread.later(self._seconds / 2, self._look_for_late)

    def _look_for_late(self) -> None:
        """Fail the calls that this method has found in flight twice before, because their time is
        over."""
        self._looking = False
        self.note_calls()
        for connect in list(self._in_flight):
            connect.looks += 1
            state, _ = connect.record.conn.call_state()
            # A call in state CALLED, made by the peer, may be up on the side of the peer already.
            if connect.looks > 2 and state not in (CallState.CALLED, CallState.UP):
                self._fail(connect, "did not answer in time (PSP_CANDIDATE_TIMEOUT)")
        if self._in_flight:
            self._look_later()

    def _established(self, connect: NodeConnect, process: int) -> None:
        record = connect.record
        assert self._option is not None
        self._in_flight.pop(connect, None)
        record.peer = self._here._replace(name=record.name, pid=process, rank=record.rank)
        usable, absent = self._explained
        self._connections.came_up(record, ((self._option.name, 0),), "", usable, absent)
        if self._connections.closing:
            record.conn.close()

    @cached_property
    def _explained(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """The transports that reach neighbours, and why the others do not, for explanations."""
        usable, absent = selection.candidates(self._transports.options, self._here, self._here)
        reasons = {name: f"{reason} (here)" for name, reason in absent.items()}
        return tuple(option.name for option in usable), reasons

    def _fail(self, connect: NodeConnect, reason: str) -> None:
        """Connect over a precon, because the call has failed."""
        record = connect.record
        logger.info("%s: %s", record.label, reason)
        self.drop(connect)
        record.precon = None
        self._fall_back(record)

    def _find(self, rank: int) -> Record | None:
        return self._find_peer(self._here._replace(rank=rank))

    def drop(self, connect: NodeConnect) -> None:
        """Forget a connect, and end its call unless the call is up."""
        self._in_flight.pop(connect, None)
        connect.record.conn.hang_up()

    # ---- notices of closing, and callers ----

    def announce_close(self, connect: NodeConnect) -> None:
        self._datagrams.send(connect.record.rank)

    def _on_closing(self, rank: int) -> None:
        self.note_calls()
        self._connections.peer_closing(self._find(rank))

    def _watch_callers(self) -> None:
        """Make progress if a rank has called and the program has made no progress since; otherwise
        wait for the next call."""
        unseen = select.poll()
        unseen.register(self._callers, select.POLLIN)
        late = bool(unseen.poll(0))
        self._progress.background(self, late)
        if late:
            self._thread.later(CALLERS_PAUSE, self._watch_callers)
        else:
            self._thread.register(self._callers, READ, self._on_callers)

    def _on_callers(self, _events: int) -> None:
        """Wait before looking whether a rank still calls, because most programs make progress
        themselves during the pause."""
        self._thread.unregister(self._callers)
        _, _, attended = self._worker.holding()
        pause = CALLERS_PAUSE if attended else ANSWER_PAUSE
        self._thread.later(pause, self._watch_callers)


def _stays_in_node(option: Option) -> bool:
    assert option.estimates is not None
    return bool(option.estimates.caps & CAP_NODE) and len(option.rails) == 1
