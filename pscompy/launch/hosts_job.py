"""A job on several hosts: an agent on each of them starts and serves its ranks.

PSP_RSH, ssh by default, starts an agent, `agent.py`, on its host. The agent receives everything on
its standard input, so that the key of the job stands in no command line, and ends when its input
ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pscompy.config.config import Config
from pscompy.config.variables import VARIABLES
from pscompy.control.descriptors import why
from pscompy.errors import ConfigError
from pscompy.launch import job
from pscompy.launch.agent_pipe import AgentPipe, pack, unpack
from pscompy.launch.environment import job_environment
from pscompy.launch.event_loop import Loop
from pscompy.launch.hosts import Share, is_here
from pscompy.launch.job import Job
from pscompy.launch.streams import Stream
from pscompy.world.bootstrap.pmi1_wire import LineBuffer

_INPUT = 32768  # maximum number of bytes of input for rank 0 that are sent in one record
_FLUSH = 1.0  # seconds within which the agents must take what is sent before the launcher stops
_LEAVE = 5.0  # seconds within which all agents must end after their inputs were closed

_OnRecord = Callable[["_Host", list[Any]], None]


class _Host:
    """A host of the job: its share of the ranks, and its agent."""

    def __init__(self, share: Share, command: list[str]) -> None:
        self.share = share
        self.ranks = set(range(share.first, share.first + share.ranks))
        # The process has a session of its own, so that a Ctrl-C at the terminal reaches the ranks
        # only by a record that the launcher sends.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.stdin, self.stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        self.stderr = os.dup(self.process.stderr.fileno())  # `Terminal` closes this descriptor
        self.process.stderr.close()

    @property
    def name(self) -> str:
        return self.share.host

    def attach(self, loop: Loop, on_record: _OnRecord, on_lost: Callable[[_Host], None]) -> None:
        self.pipe = AgentPipe(
            loop, self.stdout, self.stdin, partial(on_record, self), partial(on_lost, self)
        )

    def leave(self) -> None:
        """Close the input of the agent, which then ends."""
        assert self.process.stdin
        self.pipe.close()
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def end(self, seconds: float) -> None:
        """Wait for the end of the agent, and kill PSP_RSH if it does not end in time."""
        assert self.process.stdout
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        self.process.stdout.close()

    def kill(self) -> None:
        """Kill the processes here that lead to the agent: PSP_RSH and its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)


class _Remote:
    """A rank on some host, with its PMI requests."""

    def __init__(self, host: _Host) -> None:
        self.host = host
        self.pmi_lines = LineBuffer()


class HostsJob(Job):
    """A job on several hosts, which the `shares` of its plan name; see `Job`."""

    def _start_ranks(self) -> None:
        self._hosts: list[_Host] = []
        self._remote: dict[int, _Remote] = {}
        # stdout and stderr of each rank; processes that the rank has started may outlive it
        self._streams: dict[int, tuple[Stream, Stream]] = {}
        self._kills = 0
        environ = job_environment(self._plan.environ)
        text = Config({"": VARIABLES}, environ=environ)["RSH"]
        try:
            rsh = shlex.split(text)
            if not rsh:
                raise ValueError("names no command")
        except ValueError as error:
            raise ConfigError(f"PSP_RSH={text!r}: {error}", name="PSP_RSH", value=text) from error
        for share in self._plan.shares:
            try:
                self._start_host(share, rsh, environ)
            except OSError as error:
                self._fail(1, f"cannot run {rsh[0]} for host {share.host}: {why(error)}")
                break

    def _start_host(self, share: Share, rsh: list[str], environ: dict[str, str]) -> None:
        way = ["sh", "-c"] if is_here(share.host) else [*rsh, share.host]
        host = _Host(share, [*way, _agent_command(self._plan.mpi)])
        self._hosts.append(host)
        host.attach(self._loop, self._on_record, self._on_lost)
        self._terminal.attach_stderr(host.stderr)
        for rank in sorted(host.ranks):
            self._remote[rank] = _Remote(host)
            self._streams[rank] = self._terminal.fed(partial(self._label, rank))
        plan = {
            "argv": self._plan.argv,
            "folder": str(Path.cwd()),
            "environ": environ,
            "first": share.first,
            "count": share.ranks,
            "size": self._plan.size,
            "mpi": self._plan.mpi,
        }
        host.pipe.send("start", plan)

    @property
    def _living(self) -> bool:
        return bool(self._remote)

    def _balance(self) -> None:
        """Read the output that the hosts send, unless the launcher's own output is not read fast
        enough."""
        self._terminal.balance()
        for host in self._hosts:
            host.pipe.listen(not self._terminal.full)
        if self._terminal.broken:
            self._fail(128 + signal.SIGPIPE, "nobody reads the output any more")

    def _signal(self, number: int) -> None:
        for host in self._hosts:
            host.pipe.send("signal", number)
        if number == signal.SIGTSTP:  # the launcher stops next
            until = time.monotonic() + _FLUSH
            for host in self._hosts:
                host.pipe.flush(until)
        self._kills += number == signal.SIGKILL
        if self._kills > 1:  # an agent has not reacted to the first SIGKILL
            for host in self._hosts:
                host.kill()

    def _dump(self) -> None:
        for host in self._hosts:
            host.pipe.send("dump")

    def _killing(self, at: float) -> list[tuple[float, signal.Signals]]:
        """Return the orders that kill all ranks, and then the ways to agents that have not reacted
        within GRACE seconds."""
        return [(at, signal.SIGKILL), (at + job.GRACE, signal.SIGKILL)]

    def _answer(self, number: int, line: bytes) -> None:
        if number in self._remote:
            self._remote[number].host.pipe.send("pmi", number, line.decode("latin-1"))

    def _reap(self) -> None:
        """Nothing to do at SIGCHLD: the end of an agent is noticed by the end of its pipe."""

    def _stop(self) -> None:
        for host in self._hosts:
            host.leave()
        deadline = time.monotonic() + _LEAVE
        for host in self._hosts:
            host.end(deadline - time.monotonic())

    # ---- records of the agents ----

    def _on_record(self, host: _Host, record: list[Any]) -> None:
        kind, *fields = record
        if kind == "cannot":
            code, reason = fields
            self._fail(code, f"{reason} on host {host.name}")
            self._forget(host)
        elif kind == "want":
            self._loop.watch(0, partial(self._on_stdin, host))
        elif kind == "out":
            number, index, text = fields
            self._streams[number][index - 1].feed(unpack(text))
        elif fields[0] in self._remote:
            self._on_rank(kind, self._remote[fields[0]], *fields)

    def _on_rank(self, kind: str, rank: _Remote, number: int, *fields: Any) -> None:
        if kind == "pmi":
            self._serve(number, rank.pmi_lines, fields[0].encode("latin-1"))
        elif kind == "left":
            self._deliver(self._pmi.leave(number))
        elif kind == "deaf":
            self._deaf(number)
        elif kind == "end":
            self._take_away(number)
            self._judge(number, fields[0])

    def _take_away(self, number: int) -> None:
        """Forget a rank that has ended, and pass on its last output."""
        rank = self._remote.pop(number)
        rank.host.ranks.discard(number)
        for stream in self._streams[number]:
            stream.feed(b"")

    def _on_stdin(self, host: _Host) -> None:
        self._loop.unwatch(0)
        try:
            data = os.read(0, _INPUT)
        except OSError:  # reading fails if the launcher runs in the background
            data = b""
        host.pipe.send("in", pack(data))

    def _on_lost(self, host: _Host) -> None:
        """Handle the end of an agent, whose ranks ended with it or cannot be reached."""
        if host.ranks:
            if not self._failed:  # only the first failure is reported, with the agent's code
                with contextlib.suppress(subprocess.TimeoutExpired):
                    host.process.wait(job.GRACE)
            self._terminal.drain(host.stderr)
            code = host.process.returncode
            how = "" if code is None else f" (its agent ended with {code})"
            ranks = ", ".join(map(str, sorted(host.ranks)))
            self._fail(1, f"host {host.name} with rank {ranks} is lost{how}")
            self._forget(host)

    def _forget(self, host: _Host) -> None:
        for number in sorted(host.ranks):
            self._take_away(number)
            self._deliver(self._pmi.leave(number))


def _agent_command(mpi: bool) -> str:
    """Return the command line of an agent, for a shell of its host. Packages are found where this
    process has found them, else where they are installed on that host."""
    found = [importlib.util.find_spec(it) for it in ("pscompy", "pscompy_mpi")[: 1 + mpi]]
    sources = [str(Path(it.origin).parents[1]) for it in found if it and it.origin]
    code = (
        f"import sys; sys.path[:0] = {sources!r};"
        " from pscompy.launch.agent import Agent; Agent().run()"
    )
    return f"exec {shlex.join([sys.executable, '-I', '-c', code])}"
