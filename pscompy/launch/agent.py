"""The launcher's half on one host: starts that host's ranks, and passes their output, PMI requests
and ends on.

The first record on its standard input is the ranks to start; others are signals, answers to PMI
requests, and input for rank 0. Its standard output is for records: output of the ranks, their PMI
requests and their ends. When its standard input ends, it kills the ranks and exits.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from pscompy.config.standard_files import open_standard_files
from pscompy.errors import ConfigError
from pscompy.launch.agent_pipe import AgentPipe, pack, unpack
from pscompy.launch.environment import on_this_host, rank_variables, with_mpi
from pscompy.launch.event_loop import WRITE, Loop
from pscompy.launch.process_group import Guard
from pscompy.launch.rank import Rank, start_failure
from pscompy.launch.signals import Signals
from pscompy.launch.streams import PIPE_READS

_READ = 32768  # maximum number of bytes of output in one record


class Agent:
    """The agent on one host; `run` serves its launcher until that has ended."""

    def __init__(self) -> None:
        open_standard_files()
        self._loop = Loop()
        self._pipe = AgentPipe(self._loop, 0, 1, self._on_record, self._on_end)
        self._ranks: dict[int, Rank] = {}
        # descriptor -> its rank, and 1 for stdout or 2 for stderr
        self._outputs: dict[int, tuple[int, int]] = {}
        self._stdin: int | None = None  # write end of the pipe to rank 0's standard input
        self._input = b""
        self._over = False

    def run(self) -> None:
        with Signals() as signals, Guard() as self._guard:
            self._loop.watch(signals.fileno(), lambda: self._on_signals(signals))
            try:
                while not self._over:
                    self._balance()
                    self._loop.turn(None)
            finally:
                self._signal(signal.SIGKILL)

    def _balance(self) -> None:
        """Read the ranks' output unless the launcher is slow to take it."""
        for fd in list(self._outputs):
            if self._pipe.full:
                self._loop.unwatch(fd)
            else:
                self._loop.watch(fd, partial(self._on_output, fd))

    # ---- records of the launcher ----

    def _on_record(self, record: list[Any]) -> None:
        kind, *fields = record
        _HANDLERS[kind](self, *fields)

    def _on_end(self) -> None:
        self._over = True

    def _start(self, plan: dict[str, Any]) -> None:
        first, count, size = plan["first"], plan["count"], plan["size"]
        environ = on_this_host(plan["environ"])
        try:
            if plan["mpi"]:
                environ = with_mpi(environ)
            os.chdir(plan["folder"])
            for number in range(first, first + count):
                variables = rank_variables(number, size, number - first, count)
                self._start_rank(number, plan["argv"], {**environ, **variables})
        except OSError as error:
            self._pipe.send("cannot", *start_failure(plan["argv"], error))
        except ConfigError as error:
            self._pipe.send("cannot", 1, str(error))

    def _start_rank(self, number: int, argv: list[str], environ: dict[str, str]) -> None:
        stdin = self._open_stdin() if number == 0 else os.open(os.devnull, os.O_RDONLY)
        try:
            rank = Rank.start(number, argv, environ, self._guard.group, stdin)
        finally:
            os.close(stdin)
        self._ranks[number] = rank
        for index, fd in enumerate((rank.stdout, rank.stderr), 1):
            os.set_blocking(fd, False)
            self._outputs[fd] = number, index
        self._loop.watch(rank.pmi.fileno(), partial(self._on_pmi, rank))

    def _signal(self, number: int) -> None:
        self._guard.signal(number, self._pids())

    def _dump(self) -> None:
        self._guard.signal_catching(signal.SIGQUIT, self._pids())

    def _pids(self) -> list[int]:
        return [rank.pid for rank in self._ranks.values()]

    def _answer(self, number: int, line: str) -> None:
        """Pass the answer to a PMI request on to its rank."""
        rank = self._ranks.get(number)
        if rank is None or rank.pmi.fileno() < 0:
            return
        try:
            rank.pmi.send(line.encode("latin-1"), socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._pipe.send("deaf", number)
        except OSError:  # the rank has just ended; SIGCHLD follows
            pass

    # ---- rank 0's input ----

    def _open_stdin(self) -> int:
        reader, self._stdin = os.pipe()
        os.set_blocking(self._stdin, False)
        self._pipe.send("want")
        return reader

    def _take_input(self, text: str) -> None:
        """Take input for rank 0 from the launcher; an empty text is the end of the input."""
        if self._stdin is None:
            return
        if not text:
            self._close_stdin()
            return
        self._input = unpack(text)
        self._loop.watch(self._stdin, self._on_stdin, WRITE)

    def _on_stdin(self) -> None:
        assert self._stdin is not None
        try:
            self._input = self._input[os.write(self._stdin, self._input) :]
        except BlockingIOError:
            return
        except OSError:
            self._close_stdin()
            return
        if not self._input:
            self._loop.unwatch(self._stdin)
            self._pipe.send("want")

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            self._loop.unwatch(self._stdin)
            os.close(self._stdin)
            self._stdin = None

    # ---- events of the ranks ----

    def _on_signals(self, signals: Signals) -> None:
        for number in signals.read():
            if number in (signal.SIGHUP, signal.SIGTERM):
                self._over = True
        for rank in list(self._ranks.values()):
            status = rank.poll()
            if status is not None:
                self._end(rank, status)

    def _end(self, rank: Rank, status: int) -> None:
        self._on_pmi(rank)  # the last PMI request may be an abort
        self._hang_up(rank)
        del self._ranks[rank.number]
        # the end of the last rank may end the job, with the processes that other ranks have left
        for fd in (rank.stdout, rank.stderr) if self._ranks else list(self._outputs):
            # a limited number of reads, because the rank's children may go on writing
            for _ in range(PIPE_READS):
                if fd not in self._outputs or not self._on_output(fd):
                    break
        if rank.number == 0:
            self._close_stdin()
        self._pipe.send("end", rank.number, status)

    def _on_output(self, fd: int) -> bool:
        """Pass output of a rank on to the launcher. Returns False if there is none now."""
        number, index = self._outputs[fd]
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if data:
            self._pipe.send("out", number, index, pack(data))
            return True
        self._loop.unwatch(fd)
        del self._outputs[fd]
        os.close(fd)
        return False

    def _on_pmi(self, rank: Rank) -> None:
        if rank.pmi.fileno() < 0:
            return
        data = rank.read_pmi()
        if data:
            self._pipe.send("pmi", rank.number, data.decode("latin-1"))
        elif data is not None:
            self._hang_up(rank)

    def _hang_up(self, rank: Rank) -> None:
        if rank.pmi.fileno() >= 0:
            self._loop.unwatch(rank.pmi.fileno())
            rank.pmi.close()
            self._pipe.send("left", rank.number)


_HANDLERS: dict[str, Callable[..., None]] = {
    "start": Agent._start,
    "signal": Agent._signal,
    "dump": Agent._dump,
    "pmi": Agent._answer,
    "in": Agent._take_input,
}
