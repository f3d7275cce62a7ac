"""Progress that the control thread makes: while lanes come up or go down, or data is held back.

A program that calls pscompy drives its transports itself. The control thread does it only for
reasons that a program may not see: a lane that connects, a connection that closes, a transport
that holds data because a peer has no room for it while the program computes.
"""

from __future__ import annotations

from pscompy.control.event_loop import READ, ControlThread, Timer
from pscompy.control.worker import Engine

PASSES_MAX = 16  # passes of progress before the thread looks at its other descriptors again
STUCK_PAUSE = 1.0  # seconds between checks for stuck transports
HOLDING_PAUSE = 0.01  # seconds without progress after which this thread sends the held data

_RETIRING = "retiring"
_HOLDING = "holding"


class Progress:
    """Drives the transports of one worker as long as there is a reason to.

    All methods are for the control thread.
    """

    def __init__(self, thread: ControlThread, engine: Engine) -> None:
        self._thread = thread
        self._engine = engine
        self._reasons: set[object] = set()
        self._passes = 0  # passes of progress that this thread has made
        self._others_passes: int | None = None  # passes of other threads, while data is held
        self._holding_timer: Timer | None = None

    def start(self) -> None:
        """Begin the periodic check for transports that are stuck."""
        self._thread.set_pump(self._pump)
        self._thread.call(self._log_stuck)

    def need(self, reason: object, needed: bool) -> None:
        """Drive the transports while `reason`, or any other, needs it."""
        before = bool(self._reasons)
        (self._reasons.add if needed else self._reasons.discard)(reason)
        if bool(self._reasons) == before:
            return
        if needed:
            self._thread.register(self._engine.fabric_fd, READ, lambda _: None)
        else:
            self._thread.unregister(self._engine.fabric_fd)

    def check_background(self) -> None:
        """Drive the transports while lanes that have ended are being retired, or a transport holds
        data, because the program may not call pscompy for long."""
        self.need(_RETIRING, self._engine.retiring)
        if self._holding_timer is None:
            self._send_held()

    def _pump(self) -> bool:
        """Return True if the thread may sleep."""
        if not self._reasons:
            return True
        for _ in range(PASSES_MAX):
            self._passes += 1
            self._engine.progress()
            if self._engine.arm_fabric():
                self.check_background()
                return True
        return False

    def _send_held(self) -> None:
        """Make progress while a transport holds data and the program makes none for HOLDING_PAUSE.
        A program that calls pscompy sends the held data itself."""
        passes = self._engine.holding()
        others = None if passes is None else (passes - self._passes) % (1 << 32)
        left_alone = others is not None and others == self._others_passes
        self._others_passes = others
        self._holding_timer = None
        self.need(_HOLDING, left_alone)
        if others is not None and not left_alone:
            self._holding_timer = self._thread.later(HOLDING_PAUSE, self._send_held)

    def _log_stuck(self) -> None:
        if self._engine.log_stuck():
            self._thread.later(STUCK_PAUSE, self._log_stuck)
