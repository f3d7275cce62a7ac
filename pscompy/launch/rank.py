"""One rank: a process with its pipes and its PMI socket."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping

from pscompy.launch.environment import rank_variables
from pscompy.world.bootstrap.pmi1_wire import LineBuffer

Files = tuple[int, int, int, int]
"""The standard files of a rank, and its PMI socket; they stay the launcher's."""

Spawn = Callable[[Mapping[str, str], int, Files], int]
"""Starts a rank with these variables beside the job's (PMI_FD is added), in this process group,
and gives its process id. OSError: the program cannot be run."""

# What Python ignores, or the launcher.
RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTIN)


class Rank:
    """A started process. `stdout` and `stderr` are reading ends of pipes."""

    def __init__(self, number: int, pid: int, stdout: int, stderr: int, pmi: socket.socket) -> None:
        self.number = number
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.pmi = pmi
        self.pmi_lines = LineBuffer()

    @classmethod
    def start(cls, number: int, size: int, group: int, stdin: int, spawn: Spawn) -> Rank:
        """Start rank `number` of `size` in the process group `group`. OSError: see `Spawn`."""
        ours, theirs = socket.socketpair()
        stdout, stdout_end = os.pipe()
        stderr, stderr_end = os.pipe()
        files = (stdin, stdout_end, stderr_end, theirs.fileno())
        try:
            pid = spawn(rank_variables(number, size), group, files)
        except OSError:
            ours.close()
            os.close(stdout)
            os.close(stderr)
            raise
        finally:
            theirs.close()
            os.close(stdout_end)
            os.close(stderr_end)
        return cls(number, pid, stdout, stderr, ours)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


class Program:
    """Starts a command anew for each rank."""

    def __init__(self, argv: list[str], environ: Mapping[str, str]) -> None:
        self._argv = argv
        self._environ = environ

    def spawn(self, variables: Mapping[str, str], group: int, files: Files) -> int:
        """See `Spawn`."""
        *standard, pmi = files
        os.set_inheritable(pmi, True)
        return os.posix_spawnp(
            self._argv[0],
            self._argv,
            {**self._environ, **variables, "PMI_FD": str(pmi)},
            file_actions=[(os.POSIX_SPAWN_DUP2, file, n) for n, file in enumerate(standard)],
            setpgroup=group,
            setsigmask=(),
            setsigdef=RESET,
        )
