"""The process group of a job, which is killed when the launcher dies.

A small shell leads the group that all ranks join. It reads from a pipe whose
other end only the launcher holds. When the launcher ends, even by SIGKILL, the
shell reads the end of the pipe and kills the group: itself, the ranks, and the
processes that they started. While the shell runs, the kernel cannot assign the
group's number to another group.

A rank may leave the group, as timeout(1) and setsid(1) do. Therefore the
launcher also signals each rank that is elsewhere, with the group that it leads.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Collection
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

    def signal(self, number: int, ranks: Collection[int] = ()) -> None:
        """Send a signal to every process of the group, and to those of `ranks`, processes that were
        not waited for yet, that have left the group, with the groups that they lead."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.group, number)
        for pid in ranks:
            with contextlib.suppress(OSError):
                own = os.getpgid(pid)
                if own == pid:
                    os.killpg(own, number)
                elif own != self.group:
                    os.kill(pid, number)

    def signal_catching(self, number: int, ranks: Collection[int]) -> None:
        """Send a signal to those processes that have a handler for it, of the ones that `signal`
        sends it to; the signal would end the others."""
        groups = {self.group, *ranks}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                pid = int(folder.name)
                if not groups.isdisjoint((pid, os.getpgid(pid))) and _catches(folder, number):
                    os.kill(pid, number)

    def __exit__(self, *exc_info: object) -> None:
        self.signal(signal.SIGKILL)
        os.waitpid(self.group, 0)
        os.close(self._pipe)


def _catches(folder: Path, number: int) -> bool:
    """Whether this process, a folder of /proc, has a handler for the signal."""
    caught = re.search(r"^SigCgt:\s*(\w+)", (folder / "status").read_text(), re.M)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)
