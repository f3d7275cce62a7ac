"""One rank: a process with its pipes and its PMI socket."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping

from pscompy.control.descriptors import exhausted, why
from pscompy.world.bootstrap.pmi1_wire import LineBuffer

# Signals that Python or the launcher ignores; their default action is restored for a rank.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTIN)


class Rank:
    """A started process. `stdout` and `stderr` are the descriptors to read its output from, `pmi`
    is the launcher's end of its PMI socket."""

    def __init__(self, number: int, pid: int, stdout: int, stderr: int, pmi: socket.socket) -> None:
        self.number = number
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.pmi = pmi
        self.pmi_lines = LineBuffer()

    @classmethod
    def start(
        cls, number: int, argv: list[str], environ: Mapping[str, str], group: int, stdin: int
    ) -> Rank:
        """Start the command of rank `number` in the process group `group`.

        `stdin` is the descriptor of its standard input. PMI_FD is added to `environ`. Raises
        `OSError` if the program cannot be run.
        """
        ours, theirs = socket.socketpair()
        stdout, stdout_end = os.pipe()
        stderr, stderr_end = os.pipe()
        theirs.set_inheritable(True)
        standard = (stdin, stdout_end, stderr_end)
        try:
            pid = os.posix_spawnp(
                argv[0],
                argv,
                {**environ, "PMI_FD": str(theirs.fileno())},
                file_actions=[(os.POSIX_SPAWN_DUP2, file, n) for n, file in enumerate(standard)],
                setpgroup=group,
                setsigmask=(),
                setsigdef=_RESET,
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
        """Return the exit code of the process, or the negative number of the signal that ended it;
        None while it runs. Must not be called again after it has returned a code."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def read_pmi(self) -> bytes | None:
        """Return the bytes that have arrived at the PMI socket: empty after its end, None if none
        have arrived yet."""
        try:
            return self.pmi.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""


def start_failure(argv: list[str], error: OSError) -> tuple[int, str]:
    """Return the exit code that a shell would return for a program that cannot be started, and an
    error text."""
    code = 127 if isinstance(error, FileNotFoundError) else 126
    name = argv[0] if exhausted(error) else error.filename or argv[0]
    return code, f"cannot start {name}: {why(error)}"
