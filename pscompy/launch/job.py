"""One job: starts the ranks, serves them, and ends them together.

A single loop handles all events: output of the ranks, their PMI requests,
signals, and terminal input for rank 0. When a rank fails, the others are ended
by SIGTERM and, after GRACE seconds, by SIGKILL, unless the job is to keep going.
The first failure counts (see verdict.py): for PATIENCE seconds the launcher waits
for the ends of ranks that may have failed before.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from pscompy.launch.environment import job_environment, rank_variables, with_mpi
from pscompy.launch.event_loop import Loop
from pscompy.launch.hosts import Share
from pscompy.launch.process_group import Guard
from pscompy.launch.rank import Rank, start_failure
from pscompy.launch.signals import Signals
from pscompy.launch.summary import Summary, end_of
from pscompy.launch.terminal import Terminal
from pscompy.launch.verdict import Failure, Verdict
from pscompy.world.bootstrap.ends import Replies
from pscompy.world.bootstrap.pmi1_server import Abort, Server
from pscompy.world.bootstrap.pmi1_wire import JOB_PREFIX, LineBuffer, WireError

GRACE = 2.0  # seconds between SIGTERM and SIGKILL
# seconds to wait, after a rank has failed, for the end of one that may have failed before
PATIENCE = 2.0
_INSISTING = (signal.SIGINT, signal.SIGTERM)  # signals of which the second one kills the ranks
_SAME = 0.2  # seconds within which a second interrupt counts as a repetition of the first


class Plan(NamedTuple):
    """A job to run: the command `argv` on `size` ranks, with `environ` added to the launcher's own
    environment. If `label` is set, each line of output begins with the number of its rank. All
    ranks dump what they have in flight every `dump_after` seconds. `shares` are the ranks of each
    host; if there are none, all ranks run on this host. `keep_going`: when a rank has failed, the
    others go on. `mpi`: programs of MPI get that of pscompy."""

    argv: list[str]
    size: int
    label: bool = False
    environ: Mapping[str, str] = MappingProxyType({})
    dump_after: float = math.inf
    shares: Sequence[Share] = ()
    keep_going: bool = False
    mpi: bool = False


class Job:
    """Runs the job that a Plan describes, once, by `run`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        counts = [share.ranks for share in plan.shares] or [plan.size]
        name = f"{JOB_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"
        self._pmi = Server(counts, name, plan.keep_going)
        self._loop = Loop()
        self._terminal = Terminal(self._loop)
        self._alive: dict[int, Rank] = {}
        # signals to send later: (monotonic time, signal)
        self._orders: list[tuple[float, signal.Signals]] = []
        self._interrupted_at: float | None = None
        self._dump_at = math.inf  # monotonic time of the next dump
        self._summary = Summary(plan.size)
        self._verdict = Verdict(self._pmi.departures)
        self._decide_at = math.inf  # monotonic time until which the first failure must be found
        self._failed = False
        self._code = 0

    def run(self) -> int:
        """Start all ranks and serve them until the last has ended. Returns the job's exit code."""
        with Signals() as self._signals, Guard() as self._guard:
            self._loop.watch(self._signals.fileno(), self._on_signals)
            self._start_ranks()
            self._dump_at = time.monotonic() + self._plan.dump_after
            while self._living:
                self._check_output()
                self._balance()
                self._loop.turn(self._time_left())
                self._decide()
                self._carry_out_orders()
            self._stop()
        self._terminal.flush()
        self._check_output()
        if self._code:
            for line in self._summary.lines():
                self._terminal.say(f"pscompy run: {line}")
        self._terminal.flush()
        self._loop.close()
        return self._code

    # ---- ranks on this host; `HostsJob` has them on others ----

    def _start_ranks(self) -> None:
        environ = job_environment(self._plan.environ)
        if self._plan.mpi:
            environ = with_mpi(environ)
        for number in range(self._plan.size):
            try:
                self._start_rank(number, environ)
            except OSError as error:
                self._fail(*start_failure(self._plan.argv, error))
                break

    def _start_rank(self, number: int, environ: Mapping[str, str]) -> None:
        plan = self._plan
        stdin = self._terminal.stdin() if number == 0 else os.open(os.devnull, os.O_RDONLY)
        try:
            variables = {**environ, **rank_variables(number, plan.size, number, plan.size)}
            rank = Rank.start(number, plan.argv, variables, self._guard.group, stdin)
        finally:
            os.close(stdin)
        self._alive[number] = rank
        self._terminal.attach(rank, partial(self._label, number))
        self._loop.watch(rank.pmi.fileno(), partial(self._on_pmi, rank))

    def _label(self, number: int) -> bytes:
        """Return the text before each line of a rank: its number in the World, which is larger than
        the job once ranks have joined it to others."""
        first, size = self._pmi.joined
        width = len(str(size - 1))
        return f"[{first + number:>{width}}] ".encode() if self._plan.label else b""

    @property
    def _living(self) -> bool:
        return bool(self._alive)

    def _balance(self) -> None:
        self._terminal.balance()

    def _check_output(self) -> None:
        if flaw := self._terminal.flaw:
            self._fail(1, f"the standard output cannot be written: {flaw}")

    def _signal(self, number: int) -> None:
        """Send a signal to all ranks."""
        self._guard.signal(number, self._pids())

    def _killing(self, at: float) -> list[tuple[float, signal.Signals]]:
        """Return the orders that kill all ranks at this monotonic time."""
        return [(at, signal.SIGKILL)]

    def _dump(self) -> None:
        """Have each rank that handles SIGQUIT write the dump of its operations in flight."""
        self._guard.signal_catching(signal.SIGQUIT, self._pids())

    def _pids(self) -> list[int]:
        return [rank.pid for rank in self._alive.values()]

    def _stop(self) -> None:
        """Release the resources of the ranks, all of which have ended. There is nothing to release
        on this host; HostsJob ends its agents."""

    def _reap(self) -> None:
        """Handle the ends of ranks. Of those that have ended since the last time, the ones that a
        signal has ended come first: their order is not known, and others may have failed for want
        of them."""
        polled = [(rank, rank.poll()) for rank in self._alive.values()]
        ended = [(rank, status) for rank, status in polled if status is not None]
        for rank, status in sorted(ended, key=lambda it: it[1] >= 0):
            self._end(rank, status)

    def _end(self, rank: Rank, status: int) -> None:
        """Handle the end of a rank's process; `status` is negative for a signal."""
        self._on_pmi(rank)  # the last PMI request may be an abort
        del self._alive[rank.number]
        self._hang_up(rank)
        self._terminal.finish(rank)
        self._judge(rank.number, status)

    # ---- signals and ends ----

    def _on_signals(self) -> None:
        for number in self._signals.read():
            if number == signal.SIGCHLD:
                self._reap()
            elif number == signal.SIGTSTP:
                self._signal(number)
                os.kill(os.getpid(), signal.SIGSTOP)
            elif number in _INSISTING:
                self._interrupt(number)
            else:
                self._signal(number)

    def _interrupt(self, number: int) -> None:
        """Forward the first interrupt to the ranks; kill them at a second one."""
        now = time.monotonic()
        if self._interrupted_at is None:
            self._signal(number)
            self._interrupted_at = now
        elif now - self._interrupted_at > _SAME:
            self._orders = self._killing(now)

    def _judge(self, number: int, status: int) -> None:
        """Note the end of a rank's process for the verdict. The other ranks are told of the end,
        unless they are being ended, too."""
        replies = self._pmi.end(number, status)
        if not self._failed:
            self._deliver(replies)
        self._summary.add(number, status, self._pmi.wait_of(number))
        code = status if status >= 0 else 128 - status
        failure = Failure(code, f"rank {number} {end_of(status)}") if code else None
        self._verdict.end(number, failure)

    def _decide(self) -> None:
        """End the job if a rank has failed, once it is known which one has failed first."""
        if self._failed or self._code or not self._verdict.failed:
            return
        now = time.monotonic()
        if self._decide_at == math.inf:
            self._decide_at = now + PATIENCE
        failure = self._verdict.first(patient=self._living and now < self._decide_at)
        if failure and self._plan.keep_going and self._living:
            self._go_on(failure)
        elif failure:
            self._fail(*failure)

    def _go_on(self, failure: Failure) -> None:
        """Let the other ranks go on; the failure determines the exit code of the job."""
        self._code, self._decide_at = failure.code, math.inf
        self._terminal.say(f"pscompy run: {failure.reason}; the others go on (--keep-going)")

    def _fail(self, code: int, reason: str) -> None:
        """End all ranks. The first call determines the exit code of the job.

        After Ctrl-C the ranks get GRACE seconds to clean up before SIGTERM.
        """
        if self._failed:
            return
        self._failed, self._code = True, self._code or code
        self._terminal.say(
            f"pscompy run: {reason}" + ("; ending the others" if self._living else "")
        )
        begin = time.monotonic() + (0.0 if self._interrupted_at is None else GRACE)
        self._orders += [(begin, signal.SIGTERM), *self._killing(begin + GRACE)]

    def _carry_out_orders(self) -> None:
        while self._orders and self._orders[0][0] <= time.monotonic():
            self._signal(self._orders.pop(0)[1])
            self._signal(signal.SIGCONT)  # a stopped process does not handle SIGTERM
        if self._dump_at <= time.monotonic():
            self._dump_at = time.monotonic() + self._plan.dump_after
            self._dump()

    def _time_left(self) -> float | None:
        due = min(self._dump_at, self._orders[0][0] if self._orders else math.inf)
        due = due if self._failed else min(due, self._decide_at)
        return None if due == math.inf else max(0.0, due - time.monotonic())

    # ---- PMI ----

    def _on_pmi(self, rank: Rank) -> None:
        data = rank.read_pmi()
        if data:
            self._serve(rank.number, rank.pmi_lines, data)
        elif data is not None:
            self._hang_up(rank)

    def _serve(self, number: int, lines: LineBuffer, data: bytes) -> None:
        """Handle the PMI requests of a rank that `data` completes."""
        try:
            for line in lines.feed(data):
                self._deliver(self._pmi.receive(number, line))
        except WireError as error:
            self._fail(1, f"rank {number} speaks no PMI-1: {error}")
        except Abort as abort:
            earlier = self._verdict.first(patient=False)
            self._fail(*(earlier or (abort.code & 0xFF or 1, str(abort))))

    def _hang_up(self, rank: Rank) -> None:
        if rank.pmi.fileno() >= 0:
            self._loop.unwatch(rank.pmi.fileno())
            rank.pmi.close()
            self._deliver(self._pmi.leave(rank.number))

    def _deliver(self, replies: Replies) -> None:
        for number, line in replies:
            self._answer(number, line)

    def _answer(self, number: int, line: bytes) -> None:
        rank = self._alive.get(number)
        if rank is None or rank.pmi.fileno() < 0:
            return
        try:
            rank.pmi.send(line, socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._deaf(number)
        except OSError:  # the rank has just ended; SIGCHLD follows
            pass

    def _deaf(self, number: int) -> None:
        self._fail(1, f"rank {number} asks by PMI and does not read the answers")
