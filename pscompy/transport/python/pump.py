"""The pump: the thread that runs one transport written in Python.

It waits for the bridge's descriptor and for the descriptors that the transport watches, and
handles their events. No other thread calls the transport, so a transport needs no lock; and if
one of its calls blocks, only this thread is blocked.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pscompy.errors import PscomError, describe
from pscompy.transport.python.base import PythonTransport
from pscompy.transport.python.checks import check_opened
from pscompy.transport.python.links import Links
from pscompy.transport.python.native import native

logger = logging.getLogger("pscompy.plugin")  # the logger of plug-ins

JOIN_SECONDS = 2.0
STUCK_SECONDS = 0.5  # a call that takes longer is reported as blocking
OURS = __name__.rpartition(".")[0]  # this package, whose functions call the transport


@contextmanager
def _named(call: str) -> Iterator[None]:
    """Turn an exception of a transport's call, even `SystemExit`, into a `PscomError` that names
    the call. An `OSError` passes through: its text is written for the user."""
    try:
        yield
    except (OSError, PscomError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PscomError(f"{call} raised {describe(error)}") from error


class Pump:
    """Opens the transport within `seconds`, and runs it until `close`.

    An `OSError` of the transport's `open` passes through, and another exception becomes a
    `PscomError` that names the call; no resource stays allocated. If `open` takes too long,
    `TimeoutError` is raised. The thread then waits for `open` to return, and
    closes the transport.
    """

    def __init__(
        self,
        name: str,
        made: type[PythonTransport],
        settings: Mapping[str, Any],
        seconds: float,
    ) -> None:
        module = native()
        self._ffi, self._lib = module.ffi, module.lib
        self._name = name
        with _named(f"{made.__name__}()"):
            self._transport = transport = made()
        self._links = Links(name, transport)
        self._watches = self._links.watches
        self._command = self._ffi.new("bridge_command_t *")
        self._since: float | None = None  # start time of the current round of `_serve`
        self._stuck_logged = False  # a blocking call was logged
        self._opening = threading.Lock()
        self._opened = threading.Event()
        self._abandoned = False  # the transport's `open` did not return before the time-out
        self._refusal: BaseException | None = None  # exception of the transport's `open`
        self._thread = threading.Thread(
            target=self._run, args=(settings,), name=f"pscompy-{name}", daemon=True
        )
        self._thread.start()
        self._await_open(seconds)

    def _await_open(self, seconds: float) -> None:
        """Wait until `open` has returned. Raises `TimeoutError` after `seconds`, or the exception
        of `open`."""
        try:
            self._opened.wait(None if math.isinf(seconds) else seconds)
        finally:
            with self._opening:
                self._abandoned = not self._opened.is_set()
        if self._abandoned:
            why = self.stuck() or "its open() has not returned"
            raise TimeoutError(f"did not open in {seconds:g} s (PSP_CANDIDATE_TIMEOUT): {why}")
        if self._refusal is not None:
            self._thread.join()
            raise self._refusal

    def _open(self, settings: Mapping[str, Any]) -> bool:
        """Open the transport, on the pump's thread. Returns False if it cannot run."""
        try:
            self._since = time.monotonic()
            with _named("open()"):
                address = self._transport.open(settings)
            self._bridge = self._create(address)
            self._links.bridge = self._bridge
            self._watches.add_command_fd(self._lib.bridge_fd(self._bridge))
        except BaseException as refusal:
            self._refusal = refusal
        with self._opening:
            self._opened.set()
        if self._refusal is None and not self._abandoned:
            return True
        if self._refusal is None:  # the transport was opened after the time-out
            self._links.close_transport()
            self._lib.bridge_release(self._bridge)
        self._watches.close()
        return False

    def _create(self, address: bytes) -> Any:
        """Create the bridge of the transport, which is closed if that fails."""
        try:
            check_opened(self._transport, address)
            return self._new_bridge(address)
        except BaseException:
            self._links.close_transport()
            raise

    def _new_bridge(self, address: bytes) -> Any:
        transport = self._transport
        attr = self._ffi.new("bridge_attr_t *")
        attr.latency_ns = transport.latency * 1e9
        attr.bandwidth = transport.bandwidth
        attr.max_frame = transport.max_frame
        attr.queue = transport.queue
        attr.node_only = bool(transport.node_only)
        bridge = self._lib.bridge_create(self._name.encode(), attr, address, len(address))
        if not bridge:
            raise PscomError("no bridge could be made: out of memory or descriptors")
        return bridge

    # ---- called by the session ----

    @property
    def ops(self) -> int:
        """The address of the bridge's psc_transport_ops_t, valid until `close`."""
        return int(self._lib.bridge_ops(self._bridge))

    @property
    def handle(self) -> int:
        """The bridge's address in memory, by which the function `open` in `ops` finds it."""
        return int(self._ffi.cast("uintptr_t", self._bridge))

    def close(self) -> None:
        """End the thread. If a call of the transport blocks it for JOIN_SECONDS, the thread is
        abandoned, with its half of the bridge."""
        self._lib.bridge_end(self._bridge)
        self._thread.join(JOIN_SECONDS)
        if not self._thread.is_alive():
            self._lib.bridge_release(self._bridge)
        elif not self.stuck():
            logger.warning("the thread of the transport %s does not end", self._name)

    def stuck(self) -> str:
        """Return a text that says which call of the transport blocks, and where, or an empty text
        if none blocks. May be called on any thread; a blocking call is logged once."""
        since = self._since
        seconds = 0.0 if since is None else time.monotonic() - since
        if seconds < STUCK_SECONDS:
            return ""
        call = self._blocking_call()
        why = f"its {call} has not returned for {seconds:.1f} s, and no call may block"
        if not self._stuck_logged:
            self._stuck_logged = True
            logger.warning("the transport %s blocks: %s", self._name, why)
        return why

    def _blocking_call(self) -> str:
        """Return the name of the transport's function that the thread is executing."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        found = "call"
        while frame is not None and not frame.f_globals.get("__name__", "").startswith(OURS):
            code = frame.f_code
            if not code.co_name.startswith("<"):  # not a lambda
                found = f"{code.co_name}() ({code.co_filename}, line {frame.f_lineno})"
            frame = frame.f_back
        return found

    # ---- the thread ----

    def _run(self, settings: Mapping[str, Any]) -> None:
        if not self._open(settings):
            return
        try:
            while self._serve():
                pass
        except BaseException as error:  # on this thread even SystemExit is the transport's
            self._break(error)
            while self._serve():
                pass
        finally:
            self._end()

    def _serve(self) -> bool:
        """Wait once for descriptors and handle their events. Returns False if the bridge has
        ended."""
        more = True
        self._since = None
        for watch, events in self._watches.wait():
            self._since = self._since or time.monotonic()
            if watch is None:
                more = self._obey()
            else:
                self._links.ready(watch, events)
        return more

    def _end(self) -> None:
        self._links.lose_all("the session is closed")
        if not self._links.broken:
            self._links.close_transport()
        self._watches.close()

    def _break(self, error: BaseException) -> None:
        """Log a failure of the whole transport, and fail all its links."""
        reason = f"the transport {self._name} has failed: {describe(error)}"
        logger.error("%s", reason, exc_info=error)
        self._links.break_all(reason)

    # ---- commands of the bridge ----

    def _obey(self) -> bool:
        """Execute all queued commands. Returns False after the last command, END."""
        lib, command, links = self._lib, self._command, self._links
        while lib.bridge_take(self._bridge, command):
            if command.kind == lib.BRIDGE_END:
                return False
            if command.kind == lib.BRIDGE_CONNECT:
                links.connect(command)
            elif command.kind == lib.BRIDGE_FRAME:
                links.send(command.ep, bytes(self._ffi.buffer(command.data, command.len)))
            elif command.kind == lib.BRIDGE_RESUME:
                links.resume(command.ep)
            else:
                links.close(command.ep)
        return True
