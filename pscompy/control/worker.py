"""The worker of a session as the control plane uses it: progress, events, lanes, connections.

This module, with conn.py, lane.py, transports.py and core_log.py, is the only one of the
control plane that calls the C core. Every method may be called from any thread; none waits for the
network.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

from pscompy.api.c.guard import guard
from pscompy.config.config import Config
from pscompy.control.conn import Conn, named_counters, raw_params, summed
from pscompy.control.core_log import CoreLog
from pscompy.control.lane import Lane, text
from pscompy.control.selection import Option, Params, Rail, shown_min
from pscompy.control.transports import Transports
from pscompy.core import check, ffi, lib
from pscompy.errors import PscomError

logger = logging.getLogger(__name__)

EVENTS_MAX = 64  # maximum number of events that one call takes from the core
ITEMS_MAX = 4096  # maximum number of items that `items` returns


class ControlEvents(NamedTuple):
    """Ids of the lanes and connections whose state has changed; ranks on this node whose call (a
    connection without a precon) has changed; ranks that call this one and have no connection with
    it. Each function that takes events fills in some of these lists."""

    lanes: list[int]
    connections: list[int]
    calls: list[int]
    callers: list[int]


class Item(NamedTuple):
    """psc_item_t: a request that is not done, or a message that no receive has matched."""

    kind: int  # one of the constants lib.PSC_ITEM_*
    id: int
    conn: int  # id of the peer's connection; 0 if any source matches, or there is no peer
    rank: int
    context: int
    tag: int
    nbytes: int
    awaited: bool  # whether a thread or an asyncio task waits for the request
    state: str


class Worker:
    """A worker of the core with its transports, and the lanes that no connection owns."""

    def __init__(self, config: Config) -> None:
        self.lanes: dict[int, Lane] = {}  # lanes that no connection owns, by id
        self._ids = itertools.count(1)
        self._handle = _create_worker(config)
        self._destroyed = False  # True: no handle of the core is valid
        # the address of the core's worker, as the binding and programs in C take it
        self.address = int(ffi.cast("uintptr_t", self._handle))
        self.transports = Transports(self._handle)
        self.log: CoreLog | None = None
        self._last_totals: dict[str, int] = {}  # counters of the worker when it was destroyed
        self._passes = ffi.new("uint32_t *")
        self._attended = ffi.new("int *")
        # one object each for all connections
        self._call = self.call
        self._destroy_connection = partial(self.call, lib.psc_conn_destroy)

    def call(self, function: Callable[..., Any], *args: Any, gone: int = 0) -> Any:
        """Call a function of the core that may meet the worker's destruction. Returns `gone` if the
        worker was destroyed."""
        with guard:
            return gone if self._destroyed else function(*args)

    # ---- the worker ----

    def start_thread(self, patience_ns: int) -> None:
        """Have a thread of the core drive the transports when the program has made no call for
        this time."""
        check(lib.psc_worker_thread_start(self._handle, patience_ns), "start the progress thread")

    def set_secret(self, secret: bytes) -> None:
        """Set the secret that authenticates remote keys of memory."""
        self.call(lib.psc_worker_secret, self._handle, secret)

    def totals(self) -> dict[str, int]:
        """Return the counters of the worker: the last ones once it is destroyed."""
        with guard:
            if self._last_totals:
                return dict(self._last_totals)
            values = ffi.new("uint64_t[]", lib.psc_counter_count())
            self.call(lib.psc_worker_counters, self._handle, values)
            return named_counters(values)

    def counters(self) -> dict[str, int]:
        """Return the counters of the worker, and the contents of its caches and pools."""
        held = partial(self.call, lib.psc_worker_holdings, self._handle)
        return self.totals() | summed(held)

    def items(self, tasks: Collection[int] = ()) -> list[Item]:
        """Return the requests that are not done, then the messages that no receive has matched: the
        first ITEMS_MAX of them, and all requests that are waited for: by threads, as the core
        knows, or by asyncio tasks, which wait for the requests at the addresses `tasks`."""
        buffer, n = self._raw_items(ITEMS_MAX)
        if n > ITEMS_MAX:
            buffer, n = self._raw_items(n)
        found = [
            Item(
                *(it.kind, it.id, it.conn, it.rank, it.context, it.tag, it.nbytes),
                *(bool(it.awaited) or int(it.request) in tasks, text(it.state)),
            )
            for it in buffer[0 : min(n, len(buffer))]
        ]
        return found[:ITEMS_MAX] + [it for it in found[ITEMS_MAX:] if it.awaited]

    def end_receive(self, id: int, status: int) -> None:
        """End a receive or probe from any source, if no message has matched it yet."""
        self.call(lib.psc_worker_end_receive, self._handle, id, status)

    def open_context(self, number: int) -> None:
        """Open the contexts of this number and the next one. Lower numbers that are not open can
        never be opened."""
        check(self.call(lib.psc_worker_open_context, self._handle, number), "a communicator")

    def close_context(self, number: int) -> None:
        """Close what `open_context` has opened: end its receives, and free its queues."""
        self.call(lib.psc_worker_close_context, self._handle, number)

    def open_log(self, level: int) -> CoreLog:
        """Have the core log its lines of up to this level into `log`, and return that."""
        self.log = CoreLog(self._handle, level)
        return self.log

    def _close_log(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None

    def _raw_items(self, size: int) -> tuple[Any, int]:
        """Return an array of at most `size` items, with the number that there is."""
        buffer = ffi.new("psc_item_t[]", size)
        return buffer, self.call(lib.psc_worker_items, self._handle, buffer, size)

    def forked(self) -> None:
        """In the child after a fork: every later call returns PSC_ERR_FORKED and changes nothing
        that the parent shares."""
        lib.psc_worker_forked(self._handle)
        self._destroyed = True
        self._close_log()

    def destroy(self) -> bool:
        """Destroy the worker; no thread may be inside one of its calls, and no handle is valid
        afterwards. Returns True if a peer may still write into memory of this process."""
        with guard:
            self._last_totals = self.totals()
            self._destroyed = True
        reached = bool(lib.psc_worker_destroy(self._handle))
        self.transports.close()
        if self.log is not None:
            self.log.read()
        self._close_log()
        if reached:
            logger.error(
                "a peer did not answer and may be in the middle of a copy into this process's "
                "memory: the buffers of operations in flight stay allocated until the process ends"
            )
        return reached

    def abandon(self) -> bool:
        """Instead of `destroy`, if a thread is stuck inside a call: free nothing, return True."""
        with guard:
            self._destroyed = True
        return True

    # ---- progress and events ----

    def progress(self) -> int:
        """Make one pass of progress; returns the number of events."""
        return int(lib.psc_worker_progress(self._handle))

    @property
    def retiring(self) -> bool:
        """True while lanes that have ended are retiring: the fabric releases them only while some
        thread makes progress."""
        return bool(lib.psc_worker_retiring(self._handle))

    def holding(self) -> tuple[bool, int, bool]:
        """Return whether something needs progress: data that a transport holds back for want of
        room, a call in flight, or a rank that calls and has no connection; then how many passes any
        thread has made, modulo 2^32, and whether a thread waits that will make progress."""
        held = lib.psc_worker_holding(self._handle, self._passes, self._attended)
        return bool(held), int(self._passes[0]), bool(self._attended[0])

    @property
    def fabric_fd(self) -> int:
        """A descriptor for the control thread, readable when a transport has an event."""
        return int(lib.psc_worker_fabric_fd(self._handle))

    def arm_fabric(self) -> bool:
        """Return True if a thread may sleep on `fabric_fd` now, False if it must call `progress`
        first."""
        return bool(lib.psc_worker_arm_fabric(self._handle) == lib.PSC_OK)

    @property
    def control_fd(self) -> int:
        """A descriptor that is readable while `control_events` has events to return."""
        return int(lib.psc_worker_control_fd(self._handle))

    def control_events(self) -> ControlEvents:
        """Take all events that the core has queued for the control plane."""
        return self._take_events(lib.psc_worker_control_poll)

    def new_calls(self) -> list[int]:
        """Take the ranks on this node whose calls (connections without a precon) have begun or come
        up since the last time; `control_events` has those that change later, or have failed."""
        return self._take_events(lib.psc_worker_calls_poll).calls

    def new_callers(self) -> list[int]:
        """Take the ranks on this node that call this one and have no connection with it."""
        return self._take_events(lib.psc_worker_callers_poll).callers

    def _take_events(self, poll: Callable[..., int]) -> ControlEvents:
        kinds = ControlEvents([], [], [], [])  # in the order of psc_control_kind_t
        events = ffi.new("psc_control_event_t[]", EVENTS_MAX)
        while count := poll(self._handle, events, EVENTS_MAX):
            for event in events[0 : max(count, 0)]:
                kinds[event.kind].append(event.id)
            if count < EVENTS_MAX:
                break
        return kinds

    # ---- lanes and connections ----

    def create_lane(self, option: Option, rail: int | None = None) -> Lane:
        """Create an endpoint of an open transport on this rail, or on its first one.

        Raises `PscomError` if the transport has no endpoint left.
        """
        lane_id = next(self._ids)
        number = next(iter(option.rails)) if rail is None else rail
        handle = lib.psc_lane_create(self._handle, option.rails[number], lane_id)
        if not handle:
            raise PscomError("the endpoint cannot be created")
        return Lane(self.lanes, Rail(option, number), lane_id, handle)

    def create_connection(self, rank: int, needs_precon: bool = True) -> Conn:
        """Create a lazy connection; if `needs_precon`, over a precon only, never by a call (see
        `join`)."""
        conn_id = next(self._ids)
        handle = lib.psc_conn_create(self._handle, conn_id, rank, needs_precon)
        if not handle:
            raise MemoryError
        return Conn(self._call, conn_id, ffi.gc(handle, self._destroy_connection))

    def peer_waits(self) -> int:
        """Return the id of a connection whose peer waits (psc_announced_t), or 0."""
        return int(self.call(lib.psc_worker_peer_waits, self._handle))

    def join(self, option: Option, key: bytes, rank: int, params: Params) -> int:
        """Let the ranks on this node that have this key call each other (connect without a precon)
        over this transport. Connections that come up by a call have these parameters. Returns a
        descriptor that is readable while a rank calls or the process of one has ended. Raises
        `PscomError` if that is not possible."""
        (iface,) = option.rails.values()
        joined = lib.psc_worker_join(self._handle, iface, key, rank, raw_params(params))
        return int(check(joined, f"{option.name}: join"))

    def part(self) -> None:
        """Call no rank from now on, and refuse the calls of ranks; see `join`."""
        lib.psc_worker_part(self._handle)


def _create_worker(config: Config) -> Any:
    raw = ffi.new("psc_worker_config_t *")
    raw.spin_ns = config["SPIN_US"] * 1000
    raw.unexpected_max = config["UNEXPECTED_MAX"]
    raw.eager_window = config["EAGER_WINDOW"]
    raw.rts_max = config["RTS_MAX"]
    raw.pool_max = config["POOL_MAX"]
    raw.tuple_min = shown_min(config["TUPLEQ"], config["TUPLEQ_MIN"])
    raw.tuple_am = config["TUPLEQ"] == "1"
    worker = lib.psc_worker_create(raw)
    if not worker:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
    return worker
