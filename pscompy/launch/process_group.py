"""The process group of a job, and the end of it when the launcher dies.

A tiny shell leads the group that all ranks join and waits at a pipe that only
the launcher holds. When the launcher is gone, even by SIGKILL, the pipe ends
and the shell kills the group: itself, the ranks, and what they started. As
long as the shell is there nobody else can get the group's number.
"""

from __future__ import annotations

import contextlib
import os
import signal

# Signals that are sent to the whole group but are not meant for the guard.
_BLOCKED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_SCRIPT = "read -r _; kill -KILL 0 # ends a job's ranks when the launcher dies"


class Guard:
    """A process group; leaving the `with` block kills what is left of it."""

    def __enter__(self) -> Guard:
        reader, self._pipe = os.pipe()
        try:
            self.group = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _SCRIPT],
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0)],
                setpgroup=0,
                setsigmask=_BLOCKED,
            )
        finally:
            os.close(reader)
        return self

    def signal(self, number: int) -> None:
        """Send a signal to every process of the group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.group, number)

    def __exit__(self, *exc_info: object) -> None:
        self.signal(signal.SIGKILL)
        os.waitpid(self.group, 0)
        os.close(self._pipe)
