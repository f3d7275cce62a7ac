"""A connection that has lost the precon that guards it, but not its lanes.

A precon runs over one network. If that fails, or the network is merely cut, a connection over
several rails, any of which may fail, goes on: only its lanes tell now whether the peer lives. The
side that had dialed the precon dials all locations of the peer's address again, until a precon of
Kind.GUARD comes about; the other side waits for it.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from typing import Any

from pscompy.control import selection
from pscompy.control.dialer import Dialer, Ended, Reached
from pscompy.control.event_loop import ControlThread, Timer
from pscompy.control.negotiation import Guarded, Negotiation

PAUSE = 1.0  # seconds before the peer is dialed again; doubled each time
PAUSE_MAX = 30.0

Dial = Callable[[Reached, Ended], Dialer]
NewPrecon = Callable[[socket.socket, Guarded], Negotiation[Any]]


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
        self._pause = PAUSE
        self._timer: Timer | None = None
        self._dialer: Dialer | None = None
        self._rivals: list[Negotiation[Any]] = []  # precons on which the peer has not answered yet
        self._begin()

    def settle(self, winner: Negotiation[Any] | None = None) -> None:
        """End all attempts; the winner's precon is kept."""
        if self._timer is not None:
            self._timer.cancel()
        if self._dialer is not None:
            self._dialer.cancel()
        rivals, self._rivals = self._rivals, []
        for rival in rivals:
            if rival is not winner:
                rival.break_off()

    def failed(self, rival: Negotiation[Any]) -> None:
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

    def _on_silence(self, rival: Negotiation[Any]) -> None:
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
            self._pause = min(2 * self._pause, PAUSE_MAX)

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
