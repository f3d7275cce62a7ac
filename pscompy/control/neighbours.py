"""Connecting ranks of one World on one node: a transport calls the rank, without the control plane.

The core calls a rank at the first use of its connection, and takes the calls of others; the
connection is up as soon as both endpoints are. This module is notified of each call, makes progress
if the program does not, and connects over a precon link, where all transports are negotiated, if a
call fails or its time has passed. Afterwards a descriptor of the peer's process guards the
connection, and a datagram says that its last message is in flight (datagrams.py).

Ranks find each other if they have the same key, which is derived from that of the job and
from everything that the identities of neighbours have in common.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from functools import cached_property, partial

from pscompy.control import selection
from pscompy.control.candidates import LaneFactory
from pscompy.control.connections import Connections
from pscompy.control.datagrams import Datagrams
from pscompy.control.event_loop import READ, ControlThread, Timer
from pscompy.control.handshake.auth import expand
from pscompy.control.handshake.codec import Writer
from pscompy.control.handshake.frames import UID_SIZE, VERSION_MAX, RefuseCode
from pscompy.control.handshake.states import Phase, PhaseEvent
from pscompy.control.peer import Record
from pscompy.control.selection import CAP_NODE, Option
from pscompy.control.worker import CallState
from pscompy.errors import PscomError

logger = logging.getLogger(__name__)

CALLERS_PAUSE = 0.02  # seconds after a call in which this thread does not look for others


class Introduction:
    """One call, and afterwards the way to notify the neighbour. It is the record's link; see
    `peer.PeerLink`."""

    def __init__(self, neighbours: Neighbours, record: Record) -> None:
        self.record = record
        self.timer: Timer | None = None
        self.guard = -1  # pidfd of the peer's process, if that is visible here
        self._neighbours = neighbours

    def announce_close(self) -> None:
        self._neighbours.announce_close(self)

    def leave(self) -> None:
        """End the call, or forget the connection, which has ended."""
        self._neighbours.drop(self)

    break_off = leave

    def refuse(self, code: RefuseCode, reason: str) -> None:
        self.leave()


class Neighbours:
    """All introductions of a session. `find` returns the record of a rank, or None if there is no
    such rank; `fall_back` connects over a precon link. All methods but `call` are for the
    control thread."""

    def __init__(
        self,
        thread: ControlThread,
        factory: LaneFactory,
        connections: Connections,
        find: Callable[[int], Record | None],
        fall_back: Callable[[Record], object],
    ) -> None:
        self._thread = thread
        self._engine = factory.engine
        self._here = factory.here
        self._progress = factory.progress
        self._seconds = factory.candidate_seconds
        self._connections = connections
        self._find = find
        self._fall_back = fall_back
        self._datagrams = Datagrams(thread, factory.here.rank, self._on_closing)
        self._callers = -1  # a descriptor that is readable while a rank calls
        self._option: Option | None = None
        self._introductions: set[Introduction] = set()  # until the connection ends

    # ---- start and end ----

    def open(self, secret: bytes) -> None:
        """Be reachable for the other ranks on this node, if the best transport to them reaches no
        other node. Called before the thread starts."""
        usable, _ = selection.candidates(self._engine.options, self._here, self._here)
        if self._here.rank < 0 or not usable or not _stays_in_node(usable[0]):
            return
        common, wire = Writer(), VERSION_MAX.to_bytes(2, "little")
        self._here._replace(uid=bytes(UID_SIZE), name="", pid=0, rank=-1).pack(common)
        key = expand(secret, b"pscompy neighbours 3", wire, common.bytes())
        params = self._connections.parameters(usable[0])
        try:
            self._datagrams.open(expand(key, b"datagrams"))
            self._callers = self._engine.join(usable[0], key, self._here.rank, params)
        except (OSError, PscomError) as error:
            logger.info("neighbours cannot reach this rank: %s", error)
            return
        self._option = usable[0]
        self._watch_callers()

    def close(self) -> None:
        """After the thread has ended, or in the child after a fork: close the descriptors."""
        self._datagrams.close()
        for introduction in self._introductions:
            if introduction.guard >= 0:
                os.close(introduction.guard)
        self._introductions.clear()

    # ---- calls ----

    def call(self, record: Record) -> bool:
        """Call this rank. Returns False if it cannot be called. For any thread."""
        return self._option is not None and self._engine.call(record.handle)

    def on_caller(self, rank: int) -> None:
        """A rank calls, to which there is no connection yet."""
        record = self._find(rank)
        if record is not None and not self._connections.closing:
            self.call(record)

    def on_call(self, rank: int) -> None:
        """The call of this rank, or ours to it, has begun, come up, or failed."""
        record = self._find(rank)
        if record is None:
            return
        self._connections.register(record)
        state, process = self._engine.call_state(record.handle)
        if record.phase is Phase.LAZY and state != CallState.NONE:
            self._begin(record)
        introduction = record.link
        if not isinstance(introduction, Introduction) or record.phase is not Phase.NEGOTIATING:
            return
        if state == CallState.UP:
            self._established(introduction, process)
        elif state == CallState.FAILED:
            self._fail(introduction, self._engine.connection_reason(record.handle))

    def _begin(self, record: Record) -> None:
        introduction = record.link = Introduction(self, record)
        self._introductions.add(introduction)
        record.error = None
        self._connections.step(record, PhaseEvent.TAKE)
        self._progress.stand_in(introduction, True)
        if math.isfinite(self._seconds):
            introduction.timer = self._thread.later(self._seconds, self._late, introduction)

    def _late(self, introduction: Introduction) -> None:
        state, _ = self._engine.call_state(introduction.record.handle)
        if state not in (CallState.CALLED, CallState.UP):  # the former may be up there
            self._fail(introduction, "did not answer in time (PSP_CANDIDATE_TIMEOUT)")

    def _established(self, introduction: Introduction, process: int) -> None:
        record = introduction.record
        assert self._option is not None
        self._settle(introduction)
        self._watch(introduction, process)
        record.peer = self._here._replace(name=record.name, pid=process, rank=record.rank)
        usable, absent = self._transports
        self._connections.came_up(record, self._option.name, 1, "", usable, absent)
        if self._connections.closing:
            self._engine.close_connection(record.handle)

    @cached_property
    def _transports(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """The transports that reach neighbours, and why the others do not, for explanations."""
        usable, absent = selection.candidates(self._engine.options, self._here, self._here)
        reasons = {name: f"{reason} (here)" for name, reason in absent.items()}
        return tuple(option.name for option in usable), reasons

    def _fail(self, introduction: Introduction, reason: str) -> None:
        """The call has failed: connect over a precon link."""
        record = introduction.record
        logger.info("%s: %s", record.label, reason)
        self.drop(introduction)
        record.link = None
        self._fall_back(record)

    def _watch(self, introduction: Introduction, process: int) -> None:
        """Notice the end of the peer's process. `process` is 0 if it is not visible here: then the
        transport alone notices it."""
        try:
            introduction.guard = os.pidfd_open(process) if process > 0 else -1
        except ProcessLookupError:
            self._thread.call(self._on_process_end, introduction, 0)
        except OSError as error:
            logger.debug("process %d cannot be watched: %s", process, error)
        if introduction.guard >= 0:
            ended = partial(self._on_process_end, introduction)
            self._thread.register(introduction.guard, READ, ended)

    def _on_process_end(self, introduction: Introduction, _events: int) -> None:
        self._unwatch(introduction)
        self._connections.guard_ended(introduction.record, bye=False, outage="")

    def _unwatch(self, introduction: Introduction) -> None:
        guard, introduction.guard = introduction.guard, -1
        if guard >= 0:
            self._thread.unregister(guard)
            os.close(guard)

    def drop(self, introduction: Introduction) -> None:
        """Forget an introduction, and end its call unless that is up."""
        self._introductions.discard(introduction)
        self._unwatch(introduction)
        self._settle(introduction)
        self._engine.hang_up(introduction.record.handle)

    def _settle(self, introduction: Introduction) -> None:
        """The call has ended: nothing more is due for it."""
        self._progress.stand_in(introduction, False)
        if introduction.timer is not None:
            introduction.timer.cancel()

    # ---- notices ----

    def announce_close(self, introduction: Introduction) -> None:
        self._datagrams.send(introduction.record.rank)

    def _on_closing(self, rank: int) -> None:
        self._connections.peer_closing(self._find(rank))

    def _watch_callers(self) -> None:
        self._progress.stand_in(self, False)
        self._thread.register(self._callers, READ, self._on_callers)

    def _on_callers(self, _events: int) -> None:
        """A rank calls: make progress if the program does not. It is not looked for more calls for
        a while, because most programs take them themselves."""
        self._thread.unregister(self._callers)
        self._progress.stand_in(self, True)
        self._thread.later(CALLERS_PAUSE, self._watch_callers)


def _stays_in_node(option: Option) -> bool:
    assert option.estimates is not None
    return bool(option.estimates.caps & CAP_NODE) and len(option.rails) == 1
