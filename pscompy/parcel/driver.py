"""The thread that drives a worker for its actions, those of all communicators together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pscompy.api.c import _binding
from pscompy.api.c.guard import guard
from pscompy.errors import Closed, PscomError, Timeout
from pscompy.parcel.alarms import Alarms

logger = logging.getLogger(__name__)


class Driver:
    """A thread that drives a worker: it calls the functions of `alarms` at their time and, while no
    other thread waits for something, makes progress and runs the call-backs of arriving
    messages."""

    def __init__(self, worker: _binding.Worker) -> None:
        self._worker = worker
        self._event = worker.event()
        self.at_end: list[Callable[[], object]] = []  # called when the worker has ended
        self.alarms = Alarms(lambda: self._event._complete(None))

    def start(self, name: str) -> None:
        """Start the thread; if that fails, a later call of `driver_of` tries again."""
        try:
            # The thread alone holds the sleeper, whose descriptors are closed when the thread ends.
            sleeper = (self._worker.sleeper(),)
            threading.Thread(target=self.run, args=sleeper, name=name, daemon=True).start()
        except Exception:
            _drivers.pop(self._worker, None)
            raise

    def run(self, sleeper: _binding.Sleeper) -> None:
        """Drive the worker until it ends."""
        try:
            while True:
                try:
                    sleeper.wait(self._event, self.alarms.until_next())
                    self._event = self._worker.event()
                except Timeout:
                    pass
                self.alarms.run()
        except PscomError as error:
            logger.debug("%s ends: %s", threading.current_thread().name, error)
        finally:
            with guard:
                del _drivers[self._worker]
            for act in self.at_end:
                act()


_drivers: dict[_binding.Worker, Driver] = {}


def driver_of(worker: _binding.Worker, name: str, at_end: Callable[[], object]) -> Driver:
    """Return the driver of a worker. The first call starts it, in a thread with this name.

    `at_end()` is called when the worker has ended. Raises `PscomError` if it has already.
    """
    found = _drivers.get(worker)
    if found is None:
        made = Driver(worker)
        found = _drivers.setdefault(worker, made)
        if found is made:
            made.start(name)
    with guard:
        if worker not in _drivers:
            raise Closed("the session is closed")
        found.at_end.append(at_end)
    return found
