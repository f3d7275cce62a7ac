"""The worker of a session as the control plane uses it: transports, lanes, connections.

The only module of the control plane that calls the C core. Every call may be made from any
thread; none waits for the network.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Protocol

from pscompy.config.config import Config, Setting, TransportWarning, warn
from pscompy.config.logs import LEVELS
from pscompy.control.handshake.frames import ADDRESS_MAX, LANES_MAX
from pscompy.control.selection import SCHEMES, Estimates, Option, Params
from pscompy.core import check, ffi, lib
from pscompy.errors import PscomError, from_status
from pscompy.plugin import Carrier, Relay

logger = logging.getLogger(__name__)

EVENTS_MAX = 64
REASON_MAX = 256
CORE_LEVELS = LEVELS[:5]  # the core tells no finer ones apart


class Transport(Protocol):
    """What the registry found; see `pscompy.discovery.registry.Found`."""

    @property
    def name(self) -> str: ...
    @property
    def user_priority(self) -> int: ...
    @property
    def dormant(self) -> bool: ...
    @property
    def transport(self) -> Any: ...
    def unavailable(self) -> str | None: ...


class Lane:
    """One endpoint of one transport, on its way into a connection."""

    def __init__(self, engine: Engine, option: Option, lane_id: int, handle: Any) -> None:
        self.option = option
        self.id = lane_id
        self.on_change: Callable[[], object] = _ignore  # its state has changed
        self._engine = engine
        self.handle = handle

    def address(self) -> bytes:
        """What the peer needs to connect; `PscomError` if the transport cannot tell."""
        room = ffi.new("uint8_t[]", ADDRESS_MAX)
        length = ffi.new("size_t *", ADDRESS_MAX)
        status = lib.psc_lane_address(self.handle, room, length)
        self._check(status, "address")
        return bytes(ffi.buffer(room, length[0]))

    def connect(self, role: int, token: bytes, address: bytes) -> None:
        """Begin; the lane's event follows, also if it is up or has failed at once."""
        status = lib.psc_lane_connect(self.handle, role, token, address, len(address))
        self._check(status, "connect")

    @property
    def up(self) -> bool:
        return bool(lib.psc_lane_state(self.handle) == lib.PSC_LANE_UP)

    @property
    def failed(self) -> bool:
        return bool(lib.psc_lane_state(self.handle) == lib.PSC_LANE_FAILED)

    @property
    def reason(self) -> str:
        text = lib.psc_lane_reason(self.handle)
        return _text(text) if text else ""

    def matching(self) -> str | None:
        """Once it is up: None, the fabric matches its messages; else why not, as far as known."""
        room = ffi.new("char[]", REASON_MAX)
        status = lib.psc_lane_matching(self.handle, room)
        return None if status == lib.PSC_OK else _text(room)

    def destroy(self) -> None:
        """Undo a lane that was not installed. Idempotent."""
        if self._engine.lanes.pop(self.id, None) is not None:
            lib.psc_lane_destroy(self.handle)

    def _check(self, status: int, what: str) -> None:
        if status < 0:
            reason = self.reason
            error = from_status(status, f"{self.option.name}: {what}")
            raise PscomError(reason) if reason else error


def _ignore() -> None:
    pass


@dataclass(frozen=True, slots=True)
class ControlEvents:
    """Ids of the lanes and connections whose state has changed."""

    lanes: list[int]
    connections: list[int]


class ConnState(IntEnum):
    """psc_conn_state_t."""

    LAZY = lib.PSC_CONN_LAZY
    CONNECTING = lib.PSC_CONN_CONNECTING
    UP = lib.PSC_CONN_UP
    CLOSING = lib.PSC_CONN_CLOSING
    CLOSED = lib.PSC_CONN_CLOSED
    FAILED = lib.PSC_CONN_FAILED


class Engine:
    """A worker with its transports. `options` tells what became of each transport."""

    ERR_CONNECT: int = lib.PSC_ERR_CONNECT
    ERR_CLOSED: int = lib.PSC_ERR_CLOSED

    def __init__(self, config: Config) -> None:
        self.lanes: dict[int, Lane] = {}
        self.relays: dict[str, Relay] = {}
        self.options: list[Option] = []
        self._ids = itertools.count(1)
        self._worker = _create_worker(config)
        self.address = self.address_of(self._worker)
        self._events = ffi.new("psc_control_event_t[]", EVENTS_MAX)
        self.log_fd: int | None = None
        self._log_write = -1
        self._log_rest = b""
        # Handles are used by any thread until destroy, and one may go wherever Python collects:
        # inside a call too.
        self._guard = threading.RLock()
        self._destroyed = False
        self._destroy = self._destroy_connection  # one object for all connections
        self._carriers: dict[str, Carrier] = {}  # closed when the worker is gone

    # ---- the worker ----

    def open(self, transports: Iterable[Transport], config: Config) -> None:
        """Open every transport that can be; a failure is a reason, not an error. Of several with
        one name the first counts."""
        first: dict[str, Transport] = {}
        for found in transports:
            first.setdefault(found.name, found)
        self.options = [self._open(found, config) for found in first.values()]
        for found, option in zip(first.values(), self.options, strict=True):
            if option.reason and found.user_priority and not found.dormant:
                _miss(found, option.reason, config.asked(found.name.upper()))

    def _open(self, found: Transport, config: Config) -> Option:
        declared = found.transport
        option = Option(
            found.name, found.user_priority, 0 if declared is None else declared.priority
        )
        reason = found.unavailable()
        if reason is not None:
            return replace(option, reason=reason)
        try:
            settings = config.settings(found.name.upper())
            carrier = declared.carry_within(settings, config["CANDIDATE_TIMEOUT"])
        except Exception as error:  # a plug-in's fault is a reason too
            return replace(option, reason=f"{error}" or type(error).__name__)
        self._carriers[found.name] = carrier
        try:
            first = self._open_path(carrier, 0)
        except PscomError as error:
            logger.info("%s cannot be used: %s", found.name, error)
            return replace(option, reason=str(error))
        if carrier.relay is not None:
            self.relays[found.name] = carrier.relay
        rails = self._open_more(carrier, first)
        across = config["MSA_SHM"]
        return replace(option, rails=rails, estimates=self._query(first), across=across)

    def _open_path(self, carrier: Carrier, path: int) -> int:
        """The index of its interface; `PscomError`: the reason."""
        settings = _settings(carrier.settings)
        room = ffi.new("char[]", REASON_MAX)
        iface = lib.psc_worker_open(
            self._worker, carrier.ops, path, settings.array, settings.count, room
        )
        if iface < 0:
            raise PscomError(_text(room) or str(from_status(iface, "open")))
        return int(iface)

    def _open_more(self, carrier: Carrier, first: int) -> dict[int, int]:
        """The other paths too: the interface of each rail."""
        rails = {self._attr(first).rail: first}
        for path in range(1, min(self._attr(first).paths, LANES_MAX)):
            try:
                iface = self._open_path(carrier, path)
            except PscomError as error:
                logger.warning("path %d cannot be used: %s", path, error)
            else:
                rails[self._attr(iface).rail] = iface
        return rails

    def _attr(self, iface: int) -> Any:
        attr = ffi.new("psc_iface_attr_t *")
        lib.psc_worker_query(self._worker, iface, attr)
        return attr

    def _query(self, iface: int) -> Estimates:
        attr = self._attr(iface)
        return Estimates(
            caps=attr.caps,
            max_bcopy=attr.max_bcopy,
            max_zcopy=attr.max_zcopy,
            min_zcopy=attr.min_zcopy,
            max_put=attr.max_put,
            max_get=attr.max_get,
            latency_ns=attr.latency_ns,
            overhead_ns=attr.overhead_ns,
            bandwidth=max(attr.bandwidth, 1.0),
            copy_bandwidth=max(attr.copy_bandwidth, 1.0),
            reg_ns=attr.reg_ns,
        )

    def start_thread(self) -> None:
        """Have the core drive the transports that are open, also while Python does something."""
        check(lib.psc_worker_thread_start(self._worker), "start the progress thread")

    @property
    def fd(self) -> int:
        return int(lib.psc_worker_fd(self._worker))

    @property
    def control_fd(self) -> int:
        return int(lib.psc_worker_control_fd(self._worker))

    def progress(self) -> int:
        return int(lib.psc_worker_progress(self._worker))

    @property
    def retiring(self) -> bool:
        """True while lanes are on their way out, which takes progress."""
        return bool(lib.psc_worker_retiring(self._worker))

    def holding(self) -> int | None:
        """None, unless transports hold what was sent for want of room, which takes progress:
        then how often somebody has made it, modulo 2^32."""
        passes = ffi.new("uint32_t *")
        return int(passes[0]) if lib.psc_worker_holding(self._worker, passes) else None

    @property
    def fabric_fd(self) -> int:
        """As `fd`, for the control thread: readable for what the fabrics have alone."""
        return int(lib.psc_worker_fabric_fd(self._worker))

    def arm_fabric(self) -> bool:
        """True: whoever sleeps on `fabric_fd` now is woken; False: call `progress`."""
        return bool(lib.psc_worker_arm_fabric(self._worker) == lib.PSC_OK)

    def control_events(self) -> ControlEvents:
        events = ControlEvents([], [])
        while count := lib.psc_worker_control_poll(self._worker, self._events, EVENTS_MAX):
            for event in self._events[0 : max(count, 0)]:
                lane = event.kind == lib.PSC_CONTROL_LANE
                (events.lanes if lane else events.connections).append(event.id)
            if count < EVENTS_MAX:
                break
        return events

    def counters(self) -> dict[str, int]:
        """All zero once the worker is destroyed."""
        values = ffi.new("uint64_t[]", lib.psc_counter_count())
        with self._guard:
            if not self._destroyed:
                lib.psc_worker_counters(self._worker, values)
        return _named_counters(values)

    def connection_counters(self, handle: Any) -> dict[str, int]:
        values = ffi.new("uint64_t[]", lib.psc_counter_count())
        fabric: dict[str, int] = {}
        with self._guard:
            if not self._destroyed:
                lib.psc_conn_counters(handle, values)
                fabric = _fabric_counters(handle)
        return _named_counters(values) | fabric

    def forked(self) -> None:
        """In the child: every later call answers FORKED and touches nothing."""
        lib.psc_worker_forked(self._worker)
        self._guard = threading.RLock()  # a thread that is not here may hold the old one
        self._destroyed = True
        self._close_log()

    def destroy(self) -> bool:
        """Nobody may be inside a call of the worker, and no handle is valid afterwards. True: a
        peer may still write into memory that it was given."""
        with self._guard:
            self._destroyed = True
        reached = bool(lib.psc_worker_destroy(self._worker))
        for carrier in self._carriers.values():
            carrier.close()
        self.read_log()
        self._close_log()
        if reached:
            logger.error(
                "a peer did not answer and may be in the middle of a copy into memory of ours: "
                "the buffers of what was in flight stay allocated until this process ends"
            )
        return reached

    def abandon(self) -> bool:
        """Instead of `destroy`, where somebody is stuck inside a call: touch nothing any more."""
        with self._guard:
            self._destroyed = True
        return True

    def _close_log(self) -> None:
        if self.log_fd is not None:
            os.close(self.log_fd)
            os.close(self._log_write)
            self.log_fd = None

    def set_secret(self, secret: bytes) -> None:
        """Set the secret that authenticates remote keys of memory."""
        with self._guard:
            if not self._destroyed:
                lib.psc_worker_secret(self._worker, secret)

    # ---- log lines of the core: "<level> <text>\n" ----

    def open_log(self, level: int) -> int:
        """Have the core write its lines into a pipe; returns the end to read from."""
        self.log_fd, self._log_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        lib.psc_worker_log_to(self._worker, self._log_write, level)
        return self.log_fd

    def read_log(self) -> None:
        """Hand the lines that are in the pipe to `logging`."""
        if self.log_fd is None:
            return
        try:
            while data := os.read(self.log_fd, 1 << 16):
                self._log_rest += data
        except BlockingIOError:
            pass
        *lines, self._log_rest = self._log_rest.split(b"\n")
        for line in lines:
            level, _, text = line.decode("utf-8", "replace").partition(" ")
            logger.log(_log_level(level), "%s", text)

    # ---- lanes and connections ----

    def stuck(self, option: Option) -> str:
        """The call in which the transport blocks, if it reports one; else an empty text."""
        stuck = self._carriers[option.name].stuck
        return stuck() if stuck is not None else ""

    def look_for_stuck(self) -> bool:
        """Have transports that are stuck say so in the log. False: none of them ever would."""
        told = [it.stuck() for it in self._carriers.values() if it.stuck is not None]
        return bool(told)

    def create_lane(self, option: Option, rail: int | None = None) -> Lane:
        """A fresh endpoint of an open transport, on its first rail or on that one; `PscomError`
        says why not."""
        lane_id = next(self._ids)
        iface = next(iter(option.rails.values())) if rail is None else option.rails[rail]
        handle = lib.psc_lane_create(self._worker, iface, lane_id)
        if not handle:
            raise PscomError("no endpoint could be made")
        lane = self.lanes[lane_id] = Lane(self, option, lane_id, handle)
        return lane

    @staticmethod
    def address_of(handle: Any) -> int:
        """A handle as the hot extension takes it."""
        return int(ffi.cast("uintptr_t", handle))

    def create_connection(self, rank: int) -> tuple[int, Any]:
        """The id and the handle of a lazy connection, which lives as long as the handle."""
        conn_id = next(self._ids)
        handle = lib.psc_conn_create(self._worker, conn_id, rank)
        if not handle:
            raise MemoryError
        return conn_id, ffi.gc(handle, self._destroy)

    def connection_state(self, handle: Any) -> ConnState:
        with self._guard:
            if self._destroyed:
                return ConnState.CLOSED
            return ConnState(lib.psc_conn_state(handle))

    def connection_reason(self, handle: Any) -> str:
        """What its transport says about its end, or nothing."""
        room = ffi.new("char[]", REASON_MAX)
        with self._guard:
            if not self._destroyed:
                lib.psc_conn_reason(handle, room)
        return _text(room)

    def begin_connecting(self, handle: Any) -> None:
        """LAZY becomes CONNECTING; any other state stays."""
        with self._guard:
            if not self._destroyed:
                lib.psc_conn_connecting(handle)

    def install(self, handle: Any, lanes: list[Lane], params: Params) -> None:
        """Let the lanes carry the connection's messages."""
        raw = ffi.new("psc_proto_params_t *")
        raw.eager_max = params.eager_max
        raw.zcopy_min = params.zcopy_min
        raw.scheme = SCHEMES[params.scheme]
        raw.fragment = params.fragment
        handles = [lane.handle for lane in lanes]
        check(lib.psc_conn_install(handle, handles, len(handles), raw), "install the lanes")
        for lane in lanes:  # they belong to the connection from now on
            del self.lanes[lane.id]

    def fail(self, handle: Any, status: int) -> None:
        lib.psc_conn_fail(handle, status)

    def peer_ended(self, handle: Any, last: bool) -> bool:
        """Deliver what has come, then fail the connection; False: more may be on its way."""
        return bool(lib.psc_conn_peer_ended(handle, last) <= lib.PSC_OK)

    def close_connection(self, handle: Any) -> None:
        with self._guard:
            if not self._destroyed:
                lib.psc_conn_close(handle)

    def _destroy_connection(self, handle: Any) -> None:
        with self._guard:
            if not self._destroyed:
                lib.psc_conn_destroy(handle)


@dataclass(frozen=True, slots=True)
class _Settings:
    """An array of psc_setting_t, with the strings that it points to."""

    array: Any
    count: int
    strings: list[Any]


def _settings(settings: list[Setting]) -> _Settings:
    array = ffi.new("psc_setting_t[]", len(settings))
    strings = []
    for slot, setting in zip(array, settings, strict=True):
        name, text = (ffi.new("char[]", word.encode()) for word in (setting.name, setting.text))
        slot.name, slot.text, slot.number = name, text, setting.number
        strings += [name, text]
    return _Settings(array, len(settings), strings)


def _miss(found: Transport, reason: str, asked: Sequence[str]) -> None:
    """Warn where a transport is missed: one that was asked for, or that runs everywhere."""
    if asked:
        warn(f"{found.name} is asked for by {', '.join(asked)}, and cannot be used: {reason}")
    elif found.transport is not None and found.transport.everywhere:
        without = f"PSP_{found.name.upper()}=0 does without it"
        warn(f"{found.name} cannot be used: {reason} ({without})", TransportWarning)


def _create_worker(config: Config) -> Any:
    raw = ffi.new("psc_worker_config_t *")
    raw.spin_ns = config["SPIN_US"] * 1000
    raw.unexpected_max = config["UNEXPECTED_MAX"]
    raw.eager_window = config["EAGER_WINDOW"]
    raw.rts_max = config["RTS_MAX"]
    raw.pool_max = config["POOL_MAX"]
    worker = lib.psc_worker_create(raw)
    if not worker:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
    return worker


def _named_counters(values: Any) -> dict[str, int]:
    return {_text(lib.psc_counter_name(i)): int(value) for i, value in enumerate(values)}


_FABRIC_COUNTERS = 256  # of all lanes of a connection, at most


def _fabric_counters(handle: Any) -> dict[str, int]:
    """What the transports of the connection count; the sum of its lanes."""
    counted = ffi.new("psc_counted_t[]", _FABRIC_COUNTERS)
    named: dict[str, int] = {}
    for i in range(lib.psc_conn_fabric_counters(handle, counted, _FABRIC_COUNTERS)):
        name = _text(counted[i].name)
        named[name] = named.get(name, 0) + int(counted[i].value)
    return named


def _text(pointer: Any) -> str:
    return bytes(ffi.string(pointer)).decode("utf-8", "replace")


def _log_level(level: str) -> int:
    number = int(level) if level.isdecimal() else len(CORE_LEVELS)
    return CORE_LEVELS[min(number, len(CORE_LEVELS) - 1)]
