"""The connections of a session that have been used: their phases, their lanes, and their ends.

A record's phase changes in one place, `Connections.step`. ondemand.py decides how a precon to the
peer is made; this module has the steps that follow: the precon is taken, lanes are installed, the
connection ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet, WeakValueDictionary

from pscompy.config import logs
from pscompy.config.config import Config
from pscompy.control.conn import Conn, ConnState
from pscompy.control.ended_ranks import EndedRanks
from pscompy.control.event_loop import ControlThread
from pscompy.control.explain import Explanation, Rails
from pscompy.control.factory import LaneFactory
from pscompy.control.lane import Lane
from pscompy.control.peer import OnSettled, PeerPrecon, Record
from pscompy.control.phases import Phase, PhaseEvent
from pscompy.control.tuning import Tuning
from pscompy.core import lib
from pscompy.errors import Closed, ConnectError, PeerLost, PscomError

if TYPE_CHECKING:
    from pscompy.control.negotiation import Negotiation

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 0.5  # seconds to receive the last data of a dead peer (PSC_CAP_EOF)
DRAIN_PAUSE = 0.01  # seconds between two checks whether a dead peer's last data has arrived
WAITS_MAX = 100  # maximum number of connections that `log_waits` names


class Holder(Protocol):
    """Keeps the program's connection objects alive while they are in use: `_binding.Worker`."""

    @property
    def awaited(self) -> list[int]:
        """The addresses of the core's requests that asyncio tasks wait for."""

    def retain(self, connection: Any, /) -> None:
        """Keep the connection from its first use on."""

    def release(self, id: int, /) -> None:
        """Keep the connection no longer: it has ended, or is lazy (not in use) again."""


class Connections:
    """Holds the records (peer.Record) of all connections that were used, by id, as long as they
    live.

    `adopt` makes and holds the record of a connection that a peer has begun. All but `register`,
    `records`, `retain`, `closing`, `begin_closing`, `close` and `log_waits` are for the control
    thread.
    """

    def __init__(
        self,
        thread: ControlThread,
        factory: LaneFactory,
        config: Config,
        holder: Holder,
        adopt: Callable[[], Record],
    ) -> None:
        # an event, made when the session begins to close, set when no connection is left
        self._all_ended: threading.Event | None = None
        self._thread = thread
        self._worker = factory.worker
        self._here = factory.here
        self._progress = factory.progress
        self._config = config
        self._holder = holder
        self._adopt = adopt
        self.ended_ranks = EndedRanks(self._worker, self.on_core_event, lambda: holder.awaited)
        self._records: WeakValueDictionary[int, Record] = WeakValueDictionary()
        self._in_use: set[Record] = set()  # records of connections that are neither lazy nor closed
        # those of which the log says that PSP_RTS_MAX holds messages back
        self._held_back: WeakSet[Record] = WeakSet()
        self.tuning = Tuning(self._worker.transports, config)

    # ---- called on any thread ----

    @property
    def closing(self) -> bool:
        """Whether the session is closing."""
        return self._all_ended is not None

    def begin_closing(self) -> threading.Event:
        """Begin no connection any more. Returns the event that is set once all have ended."""
        self._all_ended = threading.Event()
        return self._all_ended

    def register(self, record: Record) -> None:
        """Note the record of a connection that is used."""
        self._records[record.id] = record

    def records(self) -> list[Record]:
        """Return the records that are registered."""
        found = (ref() for ref in self._records.valuerefs())
        return [record for record in found if record is not None]

    def close(self, record: Record) -> None:
        """Close the connection, also if it was never used."""
        self.register(record)
        record.conn.close()

    # ---- from lazy to up ----

    def begun_by_core(self, conn_id: int) -> Record | None:
        """Return the record of a connection that the core has begun (`psc_api_t.conn_open`) and
        that this control plane must connect; else None."""
        record = self._records.get(conn_id)
        if record is None or record.phase is not Phase.LAZY:
            return None
        return record if record.conn.state is ConnState.CONNECTING else None

    def step(self, record: Record, event: PhaseEvent) -> None:
        """Change a record's phase; no other function does.

        The program's connection object is released before the core knows that the connection is
        lazy again, because its next use retains the object again.
        """
        if record.phase is Phase.LAZY:
            self.register(record)
        record.step(event)
        if record.phase in (Phase.LAZY, Phase.CLOSED):
            self._in_use.discard(record)
            self._holder.release(record.id)
        else:
            self._in_use.add(record)
        self._check_ended()

    def retain(self, connection: object) -> None:
        """Keep the program's connection object while the connection is in use."""
        self._holder.retain(connection)

    def adopt(self) -> Record:
        """Make the record of a connection that a peer has begun."""
        record = self._adopt()
        self.step(record, PhaseEvent.TAKE)
        return record

    def take(self, record: Record, negotiation: Negotiation[Record]) -> None:
        """Use the precon of `negotiation` for this connection from now on, and end this process's
        own attempts to make another precon."""
        if record.attempt is not None:
            record.attempt.cancel()
        own, record.precon = record.precon, negotiation
        if own is not None and own is not negotiation:
            own.leave()
        self.step(record, PhaseEvent.TAKE)
        record.conn.begin_connecting()

    def cancel_attempts(self, record: Record) -> None:
        """End this process's own attempts to connect, and leave all precons to the peer."""
        if record.attempt is not None:
            record.attempt.cancel()
            record.attempt = None
        record.precon = None
        if record.parked is not None:
            record.parked.leave()
            record.parked = None

    def give_up(self, record: Record, error: PscomError) -> None:
        """Fail the queued messages, because connecting has failed. The next use of the connection
        tries again, unless its rank has ended."""
        if self.ended_ranks.lose(record):
            return
        self.cancel_attempts(record)
        candidates = error.candidates if isinstance(error, ConnectError) else {}
        record.report = Explanation(reasons=dict(candidates), note=str(error))
        record.error = error
        self.step(record, PhaseEvent.GAVE_UP)
        logger.info("no connection to %s: %s", record.label, error)
        record.conn.fail(Conn.ERR_CONNECT)
        record.settle(error)

    def established(self, record: Record, negotiation: Negotiation[Record]) -> None:
        """Let the lanes, which are up on both sides, carry messages; the precon stays open as the
        guard, whose end shows that the peer has died."""
        assert negotiation.peer is not None
        assert negotiation.lanes is not None
        record.precon = None
        self.cancel_attempts(record)
        record.precon = negotiation
        record.peer = negotiation.peer
        proposed = negotiation.lanes.proposed
        lanes = negotiation.take_lanes()
        negotiation.guard(record.conn)
        self.install(record, lanes, proposed, negotiation.reasons)

    def install(
        self, record: Record, lanes: list[Lane], proposed: tuple[str, ...], reasons: dict[str, str]
    ) -> None:
        """Let these lanes carry the messages, and notify all that wait for the connection."""
        record.conn.begin_connecting()
        matching = None
        rails = tuple(lane.rail.key for lane in lanes)
        try:
            record.conn.install(lanes, self.tuning.parameters(rails))
            matching = lanes[0].matching()
        # the program has closed the connection meanwhile; the core reports that, and then the
        # record ends
        except PscomError:
            for lane in lanes:
                lane.destroy()
        self.came_up(record, rails, matching, proposed, reasons)

    def came_up(
        self,
        record: Record,
        rails: Rails,
        matching: str | None,
        proposed: tuple[str, ...],
        reasons: dict[str, str],
    ) -> None:
        """Notify all that wait for the connection, which carries messages over these rails now."""
        record.report = self.tuning.report(rails, matching, proposed, reasons)
        self.step(record, PhaseEvent.ESTABLISHED)
        if self._config["DEBUG_CONTYPE"]:
            logs.notice("connected to %s over %s", record.label, record.report.transports)
        record.settle(None)

    def _note_lost_rails(self, record: Record) -> None:
        report = record.report
        if report.lanes < 2:
            return
        lost = record.conn.lost_lanes(report.lanes)
        for lane in lost.keys() - report.lost.keys():
            logger.error(
                "%s: %s is lost (%s); the connection goes on over the others",
                *(record.label, report.rail(lane), lost[lane]),
            )
        record.report = report._replace(lost=lost)
        if record.precon is not None:
            record.precon.lose(lost)

    def _note_held_back(self, record: Record) -> None:
        announced = record.conn.announced()
        if announced.waits and record not in self._held_back:
            self._held_back.add(record)
            logger.warning(
                "%s: %d messages wait for a receive there, and later ones wait for them"
                " (PSP_RTS_MAX)",
                *(record.label, announced.sent),
            )

    def when_settled(self, record: Record, on_settled: OnSettled) -> None:
        """Call `on_settled` once the connection, whose connecting has begun, is up or failed."""
        if record.phase is Phase.UP:
            on_settled(None)
        elif record.phase is Phase.CLOSED:
            on_settled(record.error or Closed(f"the connection to {record.label} is closed"))
        elif record.phase is Phase.LAZY:
            on_settled(record.error or ConnectError(f"no connection to {record.label}"))
        else:
            record.waiting += (on_settled,)

    # ---- the end of a connection ----

    def on_core_event(self, conn_id: int) -> None:
        """Follow a change of the connection's state in the core."""
        record = self._records.get(conn_id)
        if record is None:
            return
        state = record.conn.state
        if state == ConnState.UP and record.phase is Phase.UP:
            self.tuning.correct(record)
            self._note_lost_rails(record)
            self._note_held_back(record)
        if (
            state in (ConnState.UP, ConnState.CLOSING)
            and record.phase is Phase.UP
            and record.report.lanes > 1
            and record.conn.lane_lost
        ):
            self._drain(record, time.monotonic() + DRAIN_SECONDS)
        if state == ConnState.CLOSING:
            self._progress.need(record, True)
            if record.precon is not None:
                record.precon.announce_close()
        elif state in (ConnState.CLOSED, ConnState.FAILED):
            self._end(record, lost=state == ConnState.FAILED)

    def peer_closing(self, record: Record | None) -> None:
        """Drive progress, because the peer's close message is in flight: it must be received even
        if the program makes no further call."""
        if record is not None and record.phase is Phase.UP:
            self._progress.need(record, True)

    def guard_ended(self, record: Record | None, bye: bool, outage: str) -> None:
        """Fail an established connection whose guard, the precon that stayed open, has ended: the
        peer is lost."""
        if record is None or record.phase is not Phase.UP:
            return
        if not bye and not self._config["GUARD"]:
            return
        record.error = PeerLost(_lost(record.label, outage), peer=record.label)
        self._drain(record, time.monotonic() + DRAIN_SECONDS)

    def guard_lost(self, record: Record, outage: str) -> None:
        """Go on without the guard, which has ended. If the network had no `outage`, the peer may
        have ended, too, and so all lanes: look for the peer's end for DRAIN_SECONDS. This thread
        makes progress while the program makes none, so that the peer's end is noticed in any
        case."""
        logger.debug(
            "the precon with %s has ended: %s", record.label, outage or "by the other side"
        )
        self._progress.background(record, True)
        if not outage:
            self._look_for_end(record, time.monotonic() + DRAIN_SECONDS)

    def guard_renewed(self, record: Record) -> None:
        """Go on with another precon as the guard, over which lost rails are joined again."""
        logger.debug("another precon guards the connection with %s", record.label)
        self._progress.background(record, False)
        self._note_lost_rails(record)

    def _look_for_end(self, record: Record, until: float) -> None:
        if record.phase is not Phase.UP or record.conn.peer_ended(last=False):
            return
        if time.monotonic() < until:
            self._thread.later(DRAIN_PAUSE, self._look_for_end, record, until)

    def _drain(self, record: Record, until: float) -> None:
        """Deliver the data that the peer sent before it ended, then fail the connection."""
        if record.phase is not Phase.UP:
            return
        if not record.conn.peer_ended(last=time.monotonic() >= until):
            self._thread.later(DRAIN_PAUSE, self._drain, record, until)

    def _end(self, record: Record, lost: bool) -> None:
        """Leave the precon of a connection that has ended, and release the connection."""
        if record.phase is Phase.CLOSED:
            return
        was_up, precon = record.phase is Phase.UP, record.precon
        if lost and record.error is None:
            record.error = PeerLost(f"the connection to {record.label} is lost", peer=record.label)
        self.cancel_attempts(record)
        self._leave(precon, was_up, lost)
        self._progress.need(record, False)
        self._progress.background(record, False)
        self.step(record, PhaseEvent.ENDED)
        record.settle(record.error or Closed(f"the connection to {record.label} is closed"))

    def _leave(self, precon: PeerPrecon | None, was_up: bool, lost: bool) -> None:
        if precon is None:
            return
        if lost:
            precon.break_off()
        elif was_up:
            precon.leave()
        else:
            precon.close_early(f"{self._here.name} has closed this connection")

    # ---- the end of the session ----

    def close_all(self) -> None:
        """Close all connections, after `begin_closing`, whose event is set once they have ended."""
        for record in self.records():
            record.conn.close()
        self._check_ended()

    def log_waits(self, seconds: float) -> None:
        """Log for each connection that has not ended what its close waits for, for WAITS_MAX of
        them at most. Called on any thread."""
        sends = [it for it in self._worker.items() if it.kind == lib.PSC_ITEM_SEND]
        in_use = list(self._in_use)
        for record in in_use[:WAITS_MAX]:
            lengths = [it.nbytes for it in sends if it.conn == record.id]
            waits = f"has not received {len(lengths)} messages of {sum(lengths)} bytes"
            logger.warning(
                "%s closes: %s%s %s; it waits for %.0f s at most (PSP_SHUTDOWN_TIMEOUT)",
                *(self._here.name, record.label),
                *(f" over {record.report.choice}" * bool(record.report.choice),),
                *(waits if lengths else "has not answered", seconds),
            )
        if len(in_use) > WAITS_MAX:
            name = self._here.name
            logger.warning("%s closes: it waits for %d connections in all", name, len(in_use))

    def abort_all(self) -> None:
        """Fail all connections that are still in use."""
        for record in list(self._in_use):
            record.conn.fail(Conn.ERR_CLOSED)

    def forget(self) -> None:
        """In the child after a fork: close the descriptors of attempts to connect, which the parent
        continues."""
        for record in self._in_use:
            if record.attempt is not None and record.attempt.dialer is not None:
                record.attempt.dialer.forget()

    def _check_ended(self) -> None:
        if self._all_ended is not None and not self._in_use:
            self._all_ended.set()


def _lost(label: str, outage: str) -> str:
    if not outage:
        return f"{label} has ended"
    return f"{label} does not answer, or the network to it is down: {outage} (PSP_GUARD_TIMEOUT)"
