"""Ranks that are born of one process, which has started Python and loaded pscompy once for all.

Where there are more ranks than processors, most of a launch is Python starting again and again.
The nursery is a Python with the program's own command line that stops in its start, where `site`
imports `sitecustomize` (the file in `hook`). There it loads what a World uses and forks; each
child goes on with its start and runs the program, as if nobody had been before. What they have
loaded together they share.

It is not for programs other than Python's; nor where a module beside the program has the name of
one that the nursery loads, or a .pth file has started threads, which do not survive a fork. Then
every rank is started by itself.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Iterator, Mapping

from pscompy.launch import hook
from pscompy.launch.cradle import REQUEST_MAX, YES
from pscompy.launch.environment import nursery_environment
from pscompy.launch.process_group import BLOCKED
from pscompy.launch.rank import RESET, Files

SECONDS = 30.0  # for it to answer; then every rank is started by itself


class Nursery:
    """The launcher's end. `fileno` is readable when a rank has ended, or the nursery itself;
    `stdout` and `stderr` are the reading ends of what it prints before there are ranks."""

    def __init__(self, argv: list[str], folder: str, environ: Mapping[str, str]) -> None:
        """For this command of a program in `folder`. OSError: it is not for that, with the reason
        as its text."""
        self.over = False  # it has ended, and nobody sees to ranks that are left
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.set_inheritable(True)
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        try:
            self._pid = os.posix_spawnp(
                argv[0],
                argv,
                nursery_environment(environ, hook.FOLDER, theirs.fileno()),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, stdout, 1),
                    (os.POSIX_SPAWN_DUP2, stderr, 2),
                ],
                setsigmask=BLOCKED,
                setsigdef=RESET,
            )
        finally:
            theirs.close()
            os.close(stdout)
            os.close(stderr)
        self._link.settimeout(SECONDS)
        self._link.send(os.fsencode(folder))
        if (answer := self._receive()) != YES:
            self.close()
            os.close(self.stdout)
            os.close(self.stderr)
            raise OSError(errno.ENOTSUP, answer.decode() or "no answer")

    def fileno(self) -> int:
        return self._link.fileno()

    def spawn(self, variables: Mapping[str, str], group: int, files: Files) -> int:
        """Have a rank born: see `rank.Spawn`."""
        words = [str(group), *(f"{name}={text}" for name, text in variables.items())]
        socket.send_fds(self._link, [os.fsencode("\0".join(words))], list(files))
        answer = self._receive()
        if not answer.isdigit():
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return int(answer)

    def no_more(self) -> None:
        """All ranks are born; only their ends are of interest from now on."""
        self._link.shutdown(socket.SHUT_WR)
        self._link.setblocking(False)

    def ends(self) -> Iterator[tuple[int, int]]:
        """Which ranks have ended (in the order of their births), and their wait status."""
        while not self.over:
            try:
                words = self._link.recv(REQUEST_MAX).split()
            except BlockingIOError:
                return
            if words:
                yield int(words[0]), int(words[1])
            else:
                self.over = True

    def _receive(self) -> bytes:
        """Empty: it does not answer."""
        try:
            return self._link.recv(REQUEST_MAX)
        except OSError:
            return b""

    def close(self) -> None:
        self._link.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
