"""Signals as events of the launcher's loop.

The handlers note the numbers; the wake-up descriptor only wakes the loop. Python writes to it for
every signal that has a handler in this process, a profiler's too, and drops what finds it full.
"""

from __future__ import annotations

import contextlib
import signal
import socket
from typing import Any

FORWARDED = {
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT),
}


class Signals:
    """Within the `with` block, `fileno()` is readable if `read` may return numbers of signals."""

    def __enter__(self) -> Signals:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._arrived: list[int] = []
        self._wakeup_before = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        self._before: dict[int, Any] = {
            number: signal.signal(number, self._note)
            for number in (signal.SIGCHLD, *FORWARDED)
            # A signal that is ignored from the start stays ignored, here and in the ranks: SIGHUP
            # under nohup, SIGINT and SIGQUIT in the background of a shell without job control.
            if number == signal.SIGCHLD or signal.getsignal(number) != signal.SIG_IGN
        }
        # SIGTTIN is ignored, so that a read from the terminal fails in the background, and does
        # not stop the launcher.
        self._before[signal.SIGTTIN] = signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        return self

    def fileno(self) -> int:
        return self._receiver.fileno()

    def read(self) -> list[int]:
        """Return the numbers of the signals that were handled since the last call."""
        with contextlib.suppress(BlockingIOError):
            while self._receiver.recv(4096):
                pass
        arrived, self._arrived = self._arrived, []
        return arrived

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._receiver.close()
        self._sender.close()

    def _note(self, number: int, frame: object) -> None:
        """Note the signal, then wake the loop: Python itself wakes it before this handler runs."""
        self._arrived.append(number)
        with contextlib.suppress(BlockingIOError):
            self._sender.send(b"\0")
