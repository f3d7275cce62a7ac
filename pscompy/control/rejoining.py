"""Joining rails again: a connection that goes on without a rail connects a new lane in its place.

The connector proposes one rail at a time, over the precon that guards the connection. In the trial
that follows, both sides bring up the lane, as they did the first lanes. If the trial fails, or the
rail is lost again soon, the next trial begins after a pause, which is doubled each time. Everything
here runs on the control thread.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable

from pscompy.control.candidates import Answering, Proposing
from pscompy.control.conn import Conn
from pscompy.control.event_loop import Timer
from pscompy.control.factory import LaneFactory
from pscompy.control.handshake.events import Answered, Established, Proposed, TrialFailed
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.states import PreconState
from pscompy.control.precon import Precon
from pscompy.control.selection import Rail
from pscompy.errors import PscomError

logger = logging.getLogger(__name__)

PAUSE = 1.0  # seconds before an attempt to join a rail again
PAUSE_MAX = 30.0
# a rail that is lost again within so many seconds after it was joined counts as a failure
SOON = 30.0
# maximum number of failures in a row that are counted; more do not lengthen the pause
FAILURES_MAX = 10


class Rejoining:
    """The rails of one connection that is up, `rails[i]` for lane i."""

    def __init__(
        self,
        factory: LaneFactory,
        precon: Precon,
        there: Identity,
        conn: Conn,
        rails: tuple[Rail, ...],
    ) -> None:
        self._factory = factory
        self._precon = precon
        self._there = there
        self._conn = conn
        self._rails = rails
        self._lost: list[int] = []  # lost lanes, in whose places new ones are to be connected
        self._turn = 0  # number of attempts so far, by which the lost lanes take turns
        self._lane = 0  # number of the lane that the attempt replaces
        self._half: Proposing | Answering | None = None  # this side's part of the current attempt
        self._failures = 0  # attempts in a row that failed, or whose rail was lost again soon
        self._joined = -math.inf  # when a rail was joined again last
        self._timer: Timer | None = None

    def lose(self, lanes: Iterable[int]) -> None:
        """Note which lanes the connection has lost; the connector joins their rails again."""
        before, self._lost = self._lost, sorted(lanes)
        if len(self._lost) > len(before):
            late = time.monotonic() - self._joined > SOON
            self._failures = 0 if late else min(self._failures + 1, FAILURES_MAX)
        self._continue()

    def undo(self) -> None:
        """Break off the attempt to join a rail again, because the precon ends."""
        self._lost = []
        if self._timer is not None:
            self._timer.cancel()
        self._drop()

    # ---- the connector ----

    def _continue(self) -> None:
        busy = self._half is not None or self._timer is not None
        if self._lost and not busy and self._precon.machine.connector:
            pause = min(PAUSE * 2**self._failures, PAUSE_MAX)
            self._timer = self._precon.later(pause, self._propose)

    def _propose(self) -> None:
        self._timer = None
        if not self._lost or self._precon.machine.state is not PreconState.GUARD:
            return
        self._turn += 1
        if not self._begin(self._lost[self._turn % len(self._lost)]):
            self._continue()
            return
        half = self._half = Proposing(self._factory, self._precon, self._there, self._lane)
        if not half.propose_rail(self._rails[self._lane]):
            self._fail()

    def on_answered(self, event: Answered) -> None:
        """Connect the lane if the acceptor has the rail, too; otherwise the attempt fails."""
        assert isinstance(self._half, Proposing)
        self._half.answered(event.answer)
        if not event.answer.lanes:
            self._fail()

    # ---- the acceptor ----

    def on_proposed(self, event: Proposed) -> None:
        """Answer the connector, which proposes a lane on a lost rail."""
        proposed = [(it.group, it.transport, it.lane) for it in event.proposal.candidates]
        lanes = [i for i, rail in enumerate(self._rails) if [(0, *rail.key)] == proposed]
        if not lanes or not self._begin(lanes[0]):
            name = self._rails[0].option.name
            self._precon.machine.answer((), ((name, "the rail is not lost"),))
            return
        half = self._half = Answering(self._factory, self._precon, self._there, self._lane)
        half.on_proposal(event.proposal)
        if self._precon.machine.state is PreconState.GUARD:  # this side had no lane to answer with
            self._fail()

    # ---- connector and acceptor ----

    def _begin(self, lane: int) -> bool:
        self._lane = lane
        return self._conn.join_begin(lane)

    def on_trial_failed(self, event: TrialFailed) -> None:
        """Drop the new lane, which has not come up on both sides."""
        assert self._half is not None
        self._half.trial_failed(event)
        self._fail()

    def on_established(self, event: Established) -> None:
        """Let the connection use the new lane, which has come up on both sides."""
        assert self._half is not None
        (lane,) = self._half.take()
        try:
            self._conn.join(self._lane, lane)
        except PscomError:  # the program has closed the connection
            lane.destroy()
            self._fail()
            return
        self._half = None
        self._lost = [it for it in self._lost if it != self._lane]
        self._joined = time.monotonic()
        logger.warning("%s: %s is joined again", self._there, self._rails[self._lane])
        self._continue()

    def _fail(self) -> None:
        if self._half is not None and self._half.reasons:
            rail, reasons = self._rails[self._lane], self._half.reasons
            logger.debug("%s: %s is not joined again: %s", self._there, rail, reasons)
        self._drop()
        self._failures = min(self._failures + 1, FAILURES_MAX)
        self._continue()

    def _drop(self) -> None:
        half, self._half = self._half, None
        if half is not None:
            half.undo()
            self._conn.join_fail(self._lane)
