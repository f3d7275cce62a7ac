"""One rank: a process with its pipes and its PMI socket."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping

from pscompy.bootstrap.wire import LineBuffer
from pscompy.launch.environment import rank_environment

_FileActions = list[tuple[int, int, int] | tuple[int, int, str, int, int]]


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
    def start(
        cls,
        number: int,
        size: int,
        argv: list[str],
        environ: Mapping[str, str],
        group: int,
        stdin: int | None,
    ) -> Rank:
        """Run `argv` as rank `number` of `size` in the process group `group`.

        `stdin` is a descriptor, or None for an empty one. OSError: the
        program cannot be run.
        """
        ours, theirs = socket.socketpair()
        stdout, stdout_end = os.pipe()
        stderr, stderr_end = os.pipe()
        theirs.set_inheritable(True)
        try:
            pid = os.posix_spawnp(
                argv[0],
                argv,
                rank_environment(environ, number, size, theirs.fileno()),
                file_actions=_wire_up(stdin, stdout_end, stderr_end),
                setpgroup=group,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTIN),
            )
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


def _wire_up(stdin: int | None, stdout: int, stderr: int) -> _FileActions:
    actions: _FileActions = [
        (os.POSIX_SPAWN_DUP2, stdout, 1),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
    ]
    if stdin is None:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    elif stdin != 0:
        actions.append((os.POSIX_SPAWN_DUP2, stdin, 0))
    return actions
