"""Repair of a connection over several rails that goes on without one of them, or without its guard.

`Rejoining` connects a new lane in the place of a lost one. The connector proposes one rail at a
time, over the precon that guards the connection. In the trial that follows, both sides bring up the
lane, as they did the first lanes.

`Renewal` replaces the guard, a precon, which runs over one network: if only that fails, or the
network is merely cut, the connection's lanes alone tell whether the peer lives. The side that had
dialed the precon dials all locations of the peer's address again, until a precon of Kind.GUARD
comes about; the other side waits for it.

After a failure the next attempt begins after a pause, which is doubled each time. Everything here
runs on the control thread.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pscompy.control import selection
from pscompy.control.candidates import Answering, Proposing
from pscompy.control.conn import Conn
from pscompy.control.dialer import Dialer, Ended, Reached, Rival
from pscompy.control.event_loop import ControlThread, Timer
from pscompy.control.factory import LaneFactory
from pscompy.control.handshake.events import Answered, Established, Proposed, TrialFailed
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.states import PreconState
from pscompy.control.precon import Precon
from pscompy.control.selection import Rail
from pscompy.errors import PscomError

logger = logging.getLogger(__name__)

JOIN_PAUSE, JOIN_PAUSE_MAX = 1.0, 30.0  # seconds before an attempt to join a rail again
DIAL_PAUSE, DIAL_PAUSE_MAX = 1.0, 30.0  # seconds before the peer is dialed again
# a rail that is lost again within so many seconds after it was joined counts as a failure
SOON = 30.0
# maximum number of failures in a row that are counted; more do not lengthen the pause
FAILURES_MAX = 10


class Guarded(NamedTuple):
    """A connection over several rails, `rails[i]` for lane i, that a precon guards."""

    peer: Identity
    conn: Conn
    rails: tuple[Rail, ...]
    token: bytes  # the `guard_token` of the connection's first precon


# ---- the rails ----


class Rejoining:
    """Joins the lost rails of one connection that is up."""

    def __init__(self, factory: LaneFactory, precon: Precon, guarded: Guarded) -> None:
        self._factory = factory
        self._precon = precon
        self._there = guarded.peer
        self._conn = guarded.conn
        self._rails = guarded.rails
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
            pause = min(JOIN_PAUSE * 2**self._failures, JOIN_PAUSE_MAX)
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


# ---- the guard ----

Dial = Callable[[Reached, Ended], Dialer]
NewPrecon = Callable[[socket.socket, Guarded], Rival]


def possible(guarded: Guarded | None, outage: str) -> bool:
    """Return whether the connection can go on without a guard. The connection must survive the loss
    of any lane. If the guard has ended without an `outage` of the network, the peer may have ended,
    so all lanes must notice the peer's end at once (CAP_EOF)."""
    if guarded is None or not selection.spare(guarded.rails):
        return False
    known = [rail.option.estimates for rail in guarded.rails if rail.option.estimates]
    return bool(outage) or all(it.caps & selection.CAP_EOF for it in known)


class Renewal:
    """The `peer.PeerPrecon` of a connection without guard. `dial` is None on the side that waits. A
    precon that is not the guard `silence` seconds after it was connected is given up."""

    def __init__(
        self,
        thread: ControlThread,
        guarded: Guarded,
        dial: Dial | None,
        new_precon: NewPrecon,
        silence: float,
    ) -> None:
        self.guarded = guarded
        self._thread = thread
        self._dial = dial
        self._new_precon = new_precon
        self._silence = silence
        self._pause = DIAL_PAUSE
        self._timer: Timer | None = None
        self._dialer: Dialer | None = None
        self._rivals: list[Rival] = []  # precons on which the peer has not answered yet
        self._begin()

    def settle(self, winner: Rival | None = None) -> None:
        """End all attempts; the winner's precon is kept."""
        if self._timer is not None:
            self._timer.cancel()
        if self._dialer is not None:
            self._dialer.cancel()
        rivals, self._rivals = self._rivals, []
        for rival in rivals:
            if rival is not winner:
                rival.break_off()

    def failed(self, rival: Rival) -> None:
        """Go on after a precon that was to become the guard has failed."""
        if rival not in self._rivals:
            return
        self._rivals.remove(rival)
        if self._dialer is not None:
            self._dialer.try_next()
        self._continue()

    def forget(self) -> None:
        """In the child after a fork: close the descriptors."""
        if self._dialer is not None:
            self._dialer.forget()

    def _begin(self) -> None:
        self._timer = None
        if self._dial is not None:
            self._dialer = self._dial(self._reached, self._ended)

    def _reached(self, sock: socket.socket, target: object) -> None:
        rival = self._new_precon(sock, self.guarded)
        self._rivals.append(rival)
        if math.isfinite(self._silence):
            self._thread.later(self._silence, self._on_silence, rival)

    def _on_silence(self, rival: Rival) -> None:
        """Give up a precon on which the peer has not answered; see `Dialing._on_silence`."""
        if rival in self._rivals:
            rival.break_off()
            self.failed(rival)

    def _ended(self, reason: str) -> None:
        self._continue()

    def _continue(self) -> None:
        if self._dialer is not None and self._dialer.over and not self._rivals:
            self._dialer = None
            self._timer = self._thread.later(self._pause, self._begin)
            self._pause = min(2 * self._pause, DIAL_PAUSE_MAX)

    # ---- peer.PeerPrecon ----

    def announce_close(self) -> None:
        pass

    def leave(self) -> None:
        self.settle()

    def break_off(self) -> None:
        self.settle()

    def close_early(self, reason: str) -> None:
        self.settle()

    def lose(self, lanes: dict[int, str]) -> None:
        """Do nothing: the next precon that guards the connection joins the lost rails again."""
