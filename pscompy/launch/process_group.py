"""The process group of a job, which is killed when the launcher dies.

A small shell leads the group that all ranks join. It reads from a pipe whose
other end only the launcher holds. When the launcher ends, even by SIGKILL, the
shell reads the end of the pipe and kills the group: itself, the ranks, and the
processes that they started. While the shell runs, the kernel cannot assign the
group's number to another group.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

from pscompy.launch.signals import FORWARDED

# Signals that are sent to the whole group, and that the group's leader, the shell, must block.
_BLOCKED = FORWARDED - {signal.SIGCONT}
_SCRIPT = "read -r _; kill -KILL 0 # ends a job's ranks when the launcher dies"


class Guard:
    """A process group; leaving the `with` block kills its remaining processes."""

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

    def signal_catching(self, number: int) -> None:
        """Send a signal to those processes of the group that have a handler for it; the signal
        would end the others."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                pid = int(folder.name)
                if os.getpgid(pid) == self.group and _catches(folder, number):
                    os.kill(pid, number)

    def __exit__(self, *exc_info: object) -> None:
        self.signal(signal.SIGKILL)
        os.waitpid(self.group, 0)
        os.close(self._pipe)


def _catches(folder: Path, number: int) -> bool:
    """Whether this process, a folder of /proc, has a handler for the signal."""
    caught = re.search(r"^SigCgt:\s*(\w+)", (folder / "status").read_text(), re.M)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)
