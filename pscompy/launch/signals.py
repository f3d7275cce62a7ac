"""Signals as events of the launcher's loop."""

from __future__ import annotations

import signal
import socket
from typing import Any

FORWARDED = {
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT),
}


class Signals:
    """Within the `with` block, the numbers of arriving signals can be read at `fileno()`."""

    def __enter__(self) -> Signals:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._sender.fileno())
        self._before: dict[int, Any] = {
            number: signal.signal(number, _note)
            for number in (signal.SIGCHLD, *FORWARDED)
            if not (number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN)
        }
        # SIGTTIN is ignored, so that a read from the terminal fails in the background, and does
        # not stop the launcher.
        self._before[signal.SIGTTIN] = signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        return self

    def fileno(self) -> int:
        return self._receiver.fileno()

    def read(self) -> list[int]:
        """Return the numbers of the signals that have arrived since the last call."""
        try:
            return list(self._receiver.recv(4096))
        except BlockingIOError:
            return []

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._receiver.close()
        self._sender.close()


def _note(number: int, frame: object) -> None:
    """Do nothing, because Python has written the number to the wake-up descriptor already."""
