"""Progress that the control thread makes: while lanes come up or go down, or data is held back.

A program that calls pscompy drives its transports itself. The control thread does it only for
reasons that a program may not see: a lane that connects, a connection that closes, a transport
that holds data because a peer has no room for it while the program computes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from pscompy.control.event_loop import READ, ControlThread, Timer
from pscompy.control.worker import Worker

PASSES_MAX = 16  # passes of progress before the thread looks at its other descriptors again
STUCK_PAUSE = 1.0  # seconds between checks for stuck transports
# seconds without progress by the program, after which this thread makes progress in its stead
LOOK_PAUSE = 0.005
# longest time in seconds between two checks whether the program makes progress; the time is doubled
# up to here while other processes keep the program from running (see `_starved`)
LOOK_PAUSE_MAX = 0.08
SHARE = 0.5  # part of LOOK_PAUSE that a program must have run to count as having had a CPU

_STATE = "/proc/self/stat"
_STATE_SIZE = 64  # bytes to read: the process's state follows its name, which is short

_RETIRING = "retiring"
_HOLDING = "holding"
_BACKGROUND = "standing in"


class Progress:
    """Drives the transports of one worker as long as there is a reason to.

    All methods are for the control thread.
    """

    def __init__(self, thread: ControlThread, worker: Worker) -> None:
        self._thread = thread
        self._worker = worker
        self._reasons: dict[object, None] = {}
        self._late_reasons: dict[object, None] = {}  # reasons that were given to `background`
        self._passes = 0  # passes of progress that this thread has made
        self._others_passes = -1  # passes of progress that other threads had made at the last look
        self._look: Timer | None = None
        self._pause = LOOK_PAUSE  # seconds until the next look at other threads' progress
        self._ran = 0.0  # seconds of CPU time that other threads had used at the last look
        # called while something needs progress: see Worker.holding
        self.on_held: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Begin the periodic check for transports that are stuck."""
        self._thread.add_pump(self._pump)
        self._thread.call(self._log_stuck)

    def need(self, reason: object, needed: bool) -> None:
        """Add `reason` to the reasons for which the control thread drives the transports, or remove
        it if not `needed`. The thread drives them while there is any reason."""
        before = bool(self._reasons)
        _note(self._reasons, reason, needed)
        if bool(self._reasons) == before:
            return
        if needed:
            self._thread.register(self._worker.fabric_fd, READ, lambda _: None)
        else:
            self._thread.unregister(self._worker.fabric_fd)

    def background(self, reason: object, needed: bool) -> None:
        """Add `reason` to the reasons for which this thread drives the transports while no other
        thread does (a program that calls pscompy drives them itself), or remove it if not
        `needed`."""
        _note(self._late_reasons, reason, needed)
        if not self._late_reasons:
            self.need(_BACKGROUND, False)
        elif self._look is None:
            self._look_at_others()

    def check_background(self) -> None:
        """Drive the transports while lanes that have ended are being retired, or a transport holds
        data, because the program may not call pscompy for long."""
        self.need(_RETIRING, self._worker.retiring)
        if self._look is None:
            self._look_at_others()

    def _pump(self) -> bool:
        """Make progress if there is a reason to. Returns True if the thread may sleep."""
        if not self._reasons:
            return True
        for _ in range(PASSES_MAX):
            self._passes += 1
            self._worker.progress()
            if self._worker.arm_fabric():
                self.check_background()
                return True
        return False

    def _look_at_others(self) -> None:
        """Have this thread make progress unless another thread waits in a call, or has made
        progress since the last look. If another thread does either, the first look does not call
        `on_held`, because the program may be about to do the work itself."""
        first, self._look = self._look is None, None
        if self._starved(first):
            self._pause = min(2 * self._pause, LOOK_PAUSE_MAX)
            self._look = self._thread.later(self._pause, self._look_at_others)
            return
        # halved, not reset: a program that has just got a core may soon have to wait for it again
        self._pause = max(LOOK_PAUSE, self._pause / 2)
        held, passes, attended = self._worker.holding()
        others = (passes - self._passes) % (1 << 32)
        _note(self._late_reasons, _HOLDING, held)
        alone = others == self._others_passes and not attended
        self._others_passes = others
        self.need(_BACKGROUND, bool(self._late_reasons) and alone)
        if self._late_reasons and not alone:
            self._look = self._thread.later(self._pause, self._look_at_others)
        if held and (alone or not first):
            self.on_held()

    def _starved(self, first: bool) -> bool:
        """Return whether the program wants to run, but other processes have had the cores since the
        last look. Then a time without progress does not mean that the program computes. `first` is
        True if there was no look before."""
        ran = time.process_time() - time.thread_time()
        if not first and ran - self._ran < SHARE * LOOK_PAUSE and _runnable():
            return True
        self._ran = ran
        return False

    def _log_stuck(self) -> None:
        if self._worker.transports.log_stuck():
            self._thread.later(STUCK_PAUSE, self._log_stuck)


def _note(reasons: dict[object, None], reason: object, needed: bool) -> None:
    """Add or remove a reason. An empty dict takes a third of the memory of an empty set, and each
    endpoint has two of these."""
    if needed:
        reasons[reason] = None
    else:
        reasons.pop(reason, None)


def _runnable() -> bool:
    """Return whether the main thread runs or waits for a core, if that can be told."""
    try:
        file = os.open(_STATE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no descriptor is left
        return False
    try:
        return os.read(file, _STATE_SIZE).rpartition(b") ")[2][:1] == b"R"
    finally:
        os.close(file)
