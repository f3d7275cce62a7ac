"""World: the communicator of all ranks of a job, which opens and closes this rank's session."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import sys
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn, TypeVar

from pscompy.api import process
from pscompy.api.c.guard import may_wait
from pscompy.api.request import Request
from pscompy.config import logs
from pscompy.config.standard_files import open_standard_files
from pscompy.errors import PeerLost, PscomError, Timeout
from pscompy.world.bootstrap import attach, join_up
from pscompy.world.bootstrap.launcher import Bootstrap
from pscompy.world.communicator import Communicator
from pscompy.world.job import Job

W = TypeVar("W", bound="World")

__all__ = ["World"]

logger = logging.getLogger(__name__)

PATIENCE = 1.0  # seconds that the end of a World waits for other ranks before the log says so


class World(Communicator):
    """All ranks of the job that a launcher started; without a launcher, rank 0 of 1.

    Opening a World is collective: it returns when all ranks have opened theirs. `config` is the
    configuration of its `Session`, which the World opens, and closes at its end. A context manager,
    also of asyncio: leaving it normally, without an exception, waits for the other ranks, at most
    PSP_FINALIZE_TIMEOUT seconds; leaving it by an exception does not wait.

    Raises `ConfigError` if pscompy cannot talk to the launcher, and with PSP_ONDEMAND=0 the
    error of a connection, such as `ConnectError`, if one of the ranks cannot be reached.
    """

    def __init__(self, config: Mapping[str, object] | None = None) -> None:
        self._open(attach(config), config)

    @classmethod
    def from_mpi(
        cls: type[W],
        comm: Any = None,
        join: str | None = None,
        config: Mapping[str, object] | None = None,
    ) -> W:
        """Return the ranks of a communicator of mpi4py (None means COMM_WORLD) as a World;
        collective over that communicator.

        `join` overrides PSP_JOIN, by which the communicator becomes one module of a larger World.
        The program may go on using MPI, which must be finalised after the World is closed.
        """
        from pscompy.world.bootstrap.mpi import Mpi

        open_standard_files()
        world = cls.__new__(cls)
        world._open(join_up(Mpi(comm), config, join), config)
        return world

    def _open(self, bootstrap: Bootstrap, config: Mapping[str, object] | None) -> None:
        job = Job(bootstrap, config)
        try:
            super().__init__(job, range(job.size), job.contexts.take())
            job.publish()
            self._watch()
            if not job.session.config["ONDEMAND"]:
                self._connect_to_all()
        except BaseException as error:
            self._leave_by(error)
            raise

    def _watch(self) -> None:
        """Start the thread that reports long waits, if PSP_DEADLOCK_WARNINGS is set."""
        seconds = self.session.config["DEADLOCK_WARNINGS"]
        if seconds > 0 and self.size > 1:
            from pscompy.world.watch import Watch

            self._job.watch = Watch(self._job, seconds)

    def _connect_to_all(self) -> None:
        """Wait until all connections are up. The error of one that fails names the rank."""
        for rank, request in enumerate([connection.iopen() for connection in self]):
            try:
                request.wait()
            except PscomError as error:
                named = copy.copy(error)
                reason = f"rank {rank} cannot be reached: {error}"
                named.args = (f"PSP_ONDEMAND=0 connects to all ranks, and {reason}",)
                raise named from error

    def abort(self, code: int = 1) -> NoReturn:
        """End all ranks at once; `code` becomes the exit code of the job (1 if it is 0). A forked
        child ends only itself."""
        for stream in (sys.stdout, sys.stderr):
            # the stream may be None, closed, or a pipe that nobody reads
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        if not self.session._forked:
            self._job.bootstrap.abort(code)
        os._exit(code & 0xFF or 1)

    # ---- the end ----

    def close(self) -> None:
        """Close the session, without waiting for other ranks to close theirs. Idempotent. A
        finalizer or a signal handler that must not wait has it closed in the background."""
        self._close(sys.exc_info()[1])

    def _close(self, error: BaseException | None) -> None:
        """Close the session. If `error` has led to that, as in `finally`, the launcher learns of it
        before the connections end, so that it knows which rank has failed first."""
        if not may_wait():
            process.in_background(partial(self._close, error))
            return
        early = not self.session._closing
        if early and error is not None:
            self._job.leave(error)
        self.session.close()
        if early and error is None:
            self._job.leave()

    def _leave_by(self, error: BaseException) -> None:
        """End the session without waiting, after the launcher has learned that this rank fails."""
        if not may_wait():
            process.in_background(partial(self._leave_by, error))
            return
        try:
            if not self.session._closing:
                self._job.leave(error)
        finally:
            self.session._shut(0)

    def _wait_for_all(self) -> bool:
        """Wait for all ranks at a barrier of the launcher, which needs no connections between
        ranks. Returns False if some have not come.

        The session makes progress meanwhile, because other ranks may wait for messages of this one.
        """
        timeout = self.session.config["FINALIZE_TIMEOUT"]
        request = self.session._event(Request)

        def arrive() -> None:
            try:
                self._job.bootstrap.barrier(timeout)
            except Exception as error:
                request._fail(error)
            else:
                request._complete(None)

        self.session._drive_besides()
        threading.Thread(target=arrive, name="pscompy finalize", daemon=True).start()
        try:
            with contextlib.suppress(Timeout):  # a time-out of the barrier is raised once more
                request.wait(PATIENCE)
            if not request.done():
                logger.info(
                    "rank %d waits for the others to come to the end of their World"
                    " (PSP_FINALIZE_TIMEOUT)",
                    self.rank,
                )
            request.wait()
            return True
        except Timeout:
            logs.notice(
                "rank %d ends although others have not come to the end of their World within %g s"
                " (PSP_FINALIZE_TIMEOUT)",
                *(self.rank, timeout),
            )
        except PeerLost as error:
            logger.info("rank %d ends before others: %s", self.rank, error)
        return False

    def __exit__(self, *raised: object) -> None:
        if any(raised):
            error = raised[1]
            self._leave_by(error if isinstance(error, BaseException) else RuntimeError())
            return
        try:
            if self.size > 1 and not self.session._closing and self._wait_for_all():
                self.session.close()
        finally:
            self.close()

    async def __aexit__(self, *raised: object) -> None:
        """Leave the block as `with` does, without blocking the event loop."""
        import asyncio  # imported here, because the import takes 20 ms

        await asyncio.to_thread(self.__exit__, *raised)
