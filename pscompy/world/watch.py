"""Watch: reports the ranks of a World that have waited for longer than PSP_DEADLOCK_WARNINGS.

A thread looks from time to time at what the program waits for. A rank that has waited long enough
logs its wait, publishes it at the launcher, and reads there the waits of the ranks that it waits
for, and so on. If these lead back to the rank, the ranks wait for each other: the lowest one of
them logs the cycle. Only a rank that waits that long causes any cost.

Some endpoints have workers of their own; the workers are looked at one after the other. All waits
of a cycle are on the same worker, because a message to one worker never ends a wait on another one.

A published wait has a number of beats, which grows while the wait goes on. A cycle is logged when
two looks find the same waits with more beats: then all these waits were going on when the first
look ended.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pscompy.api.dump import Operation, operations, source_line, source_lines
from pscompy.config import logs
from pscompy.errors import PscomError
from pscompy.world.bootstrap import waits

if TYPE_CHECKING:
    from pscompy.api.session import Session
    from pscompy.world.job import Job

logger = logging.getLogger(__name__)

LOOKS = 4  # number of looks at the program's waits within PSP_DEADLOCK_WARNINGS seconds
PAUSE_MAX = 5.0  # longest time in seconds between two looks at the program's waits


class Cycle(NamedTuple):
    """The ranks that wait for each other, beginning with this one, and their waits."""

    ranks: tuple[int, ...]
    found: tuple[waits.Wait, ...]

    def goes_on(self, before: Cycle | None) -> bool:
        """Return whether the earlier look `before` found the same waits, and all of them have gone
        on since."""
        if before is None or self.ranks != before.ranks:
            return False
        pairs = zip(before.found, self.found, strict=True)
        return all(old.id == new.id and old.beats < new.beats for old, new in pairs)

    def __str__(self) -> str:
        lines = [f"rank {rank} {it}" for rank, it in zip(self.ranks, self.found, strict=True)]
        names = ", ".join(map(str, self.ranks))
        return f"deadlock: ranks {names} wait for each other: {'; '.join(lines)}"


class Watch:
    """Starts the thread that reports long waits of one World. `seconds` is
    PSP_DEADLOCK_WARNINGS."""

    def __init__(self, job: Job, seconds: float) -> None:
        self._job = job
        self._limit = seconds
        self._workers: dict[Session, WorkerWatch] = {}
        pause = min(seconds / LOOKS, PAUSE_MAX)
        # the thread refers to the World weakly: the program may drop it
        given = weakref.ref(self), job.session._alive, pause
        threading.Thread(target=_run, args=given, name="pscompy watch", daemon=True).start()

    def go_on(self) -> bool:
        """Look at the waits. Returns False if that is not possible any more."""
        try:
            self._look()
        except PscomError as error:
            logger.info("the watch for deadlocks ends: %s", error)
            return False
        return True

    def end(self) -> None:
        with contextlib.suppress(PscomError):
            for worker in self._workers.values():
                worker.publish(None)

    def _look(self) -> None:
        session = self._job.session
        siblings = list(session._siblings.everyone())
        for closed in self._workers.keys() - {session, *siblings}:
            self._workers.pop(closed).publish(None)
        found = [self._worker_of(it).look() for it in siblings]
        self._worker_of(session).look(next(filter(None, found), None))

    def _worker_of(self, session: Session) -> WorkerWatch:
        if session not in self._workers:
            self._workers[session] = WorkerWatch(self._job, session, self._limit)
        return self._workers[session]


def _run(reference: weakref.ref[Watch], alive: threading.Lock, pause: float) -> None:
    """Run the thread of a watch until its session is closed, or dropped: `alive` is released
    then."""
    while not alive.acquire(timeout=pause):
        watch = reference()
        if watch is not None and not watch.go_on():
            return
        del watch
    alive.release()
    watch = reference()
    if watch is not None:
        watch.end()


class WorkerWatch:
    """Reports long waits on the worker of one session, which the World or some of its endpoints
    use."""

    def __init__(self, job: Job, session: Session, seconds: float) -> None:
        self._job = job
        self._session = session
        self._limit = seconds
        self._name = session._identity.job.removeprefix(job.session._identity.job)
        self._place: Callable[[], str] = source_lines if self._name else source_line
        self._since: dict[int, float] = {}  # operation that is waited for -> time of the first look
        self._reported: set[int] = set()  # operations that were logged
        self._wait: waits.Wait | None = None  # the wait of this worker that is published
        self._cycle: Cycle | None = None  # the cycle that the last look found
        self._logged: tuple[int, ...] = ()  # ids of the waits of the cycle that was logged last

    def look(self, elsewhere: waits.Wait | None = None) -> waits.Wait | None:
        """Log the program's long waits on this worker, and publish one of them at the launcher. If
        there is none, `elsewhere`, the wait on another worker, is published without its ranks, for
        the summary at the end of the job. Returns the published wait."""
        now = time.monotonic()
        waited = [it for it in operations(self._session) if it.awaited]
        self._since = {it.id: self._since.get(it.id, now) for it in waited}
        self._reported &= self._since.keys()
        late = [it for it in waited if now - self._since[it.id] >= self._limit]
        self._report([it for it in late if it.id not in self._reported], now)
        self.publish(self._wait_of(late, now) or (elsewhere and elsewhere._replace(ranks=())))
        self._look_for_cycle()
        return self._wait

    def _report(self, late: list[Operation], now: float) -> None:
        for it in late:
            self._reported.add(it.id)
            waited = now - self._since[it.id]
            logs.notice("rank %d has waited %.3g s: %s", self._job.rank, waited, self._located(it))

    def _wait_of(self, late: list[Operation], now: float) -> waits.Wait | None:
        """Return the wait to publish. If there are several waits, the end of one of them may be
        enough for the program to go on, so the published wait names no ranks that it waits for."""
        if not late:
            return None
        first = late[0]
        beats = self._wait.beats + 1 if self._wait and self._wait.id == first.id else 0
        ranks = first.ranks if len(late) == 1 else ()
        return waits.Wait(first.id, beats, now - self._since[first.id], ranks, self._located(first))

    def publish(self, wait: waits.Wait | None) -> None:
        if wait is not None or self._wait is not None:
            self._wait = wait
            waits.publish(self._job.bootstrap, self._name, wait)

    def _located(self, operation: Operation) -> str:
        line = self._place()
        return f"{operation.text} ({line})" if line else operation.text

    # ---- cycles ----

    def _look_for_cycle(self) -> None:
        before, self._cycle = self._cycle, self._find_cycle()
        cycle = self._cycle
        if cycle is None or not cycle.goes_on(before) or min(cycle.ranks) != self._job.rank:
            return
        ids = tuple(it.id for it in cycle.found)
        if ids != self._logged:
            self._logged = ids
            logs.notice("%s", cycle)

    def _find_cycle(self) -> Cycle | None:
        """Return a cycle of waits through this rank, in which each wait is for one rank, or for all
        of several; None if there is none."""
        if self._wait is None:
            return None
        paths = [Cycle((self._job.rank,), (self._wait,))]
        seen = {self._job.rank}
        while paths:
            path = paths.pop()
            for rank in path.found[-1].ranks:
                if rank == self._job.rank:
                    return path
                wait = None if rank in seen else waits.read(self._job.bootstrap, self._name, rank)
                seen.add(rank)
                if wait is not None:
                    paths.append(Cycle((*path.ranks, rank), (*path.found, wait)))
        return None
