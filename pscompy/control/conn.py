"""Conn: a connection of the core, and the functions of core/control.h that take one.

Every method may be called from any thread; none waits for the network.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from pscompy.control.lane import REASON_MAX, Lane, text
from pscompy.control.selection import SCHEMES, Moved, Params
from pscompy.core import check, ffi, lib
from pscompy.errors import PscomError

_COUNTED_MAX = 256  # maximum number of counters of transports that are read at once


class Announced(NamedTuple):
    """psc_announced_t: the announced messages of a connection that have no receive yet."""

    sent: int
    arrived: int
    waits: bool
    peer_waits: bool


class CallState(IntEnum):
    """The states of a call, by which ranks of one node connect without a precon:
    psc_call_state_t."""

    NONE = lib.PSC_CALL_NONE
    CALLING = lib.PSC_CALL_CALLING
    CALLED = lib.PSC_CALL_CALLED
    UP = lib.PSC_CALL_UP
    FAILED = lib.PSC_CALL_FAILED


class ConnState(IntEnum):
    """The states of a connection: psc_conn_state_t."""

    LAZY = lib.PSC_CONN_LAZY
    CONNECTING = lib.PSC_CONN_CONNECTING
    UP = lib.PSC_CONN_UP
    CLOSING = lib.PSC_CONN_CLOSING
    CLOSED = lib.PSC_CONN_CLOSED
    FAILED = lib.PSC_CONN_FAILED


class Conn:
    """A connection of the core, which lives as long as `handle`; this object may be made anew.

    `call` is the worker's `Worker.call`, for functions that may meet the worker's destruction. The
    other functions are those of the control thread, which ends before the worker.
    """

    __slots__ = ("_call", "handle", "id")

    ERR_CONNECT: int = lib.PSC_ERR_CONNECT
    ERR_CLOSED: int = lib.PSC_ERR_CLOSED
    ERR_PEER_LOST: int = lib.PSC_ERR_PEER_LOST

    def __init__(self, call: Callable[..., Any], id: int, handle: Any) -> None:
        self._call = call
        self.id = id
        self.handle = handle  # owns the core's connection (psc_conn_t *)

    @property
    def address(self) -> int:
        """The address of the core's connection, as the binding and programs in C take it."""
        return int(ffi.cast("uintptr_t", self.handle))

    def set_rank(self, rank: int) -> None:
        """Let this connection, which was created with rank -1, be the one with the rank."""
        self._call(lib.psc_conn_set_rank, self.handle, rank)

    @property
    def state(self) -> ConnState:
        return ConnState(self._call(lib.psc_conn_state, self.handle, gone=lib.PSC_CONN_CLOSED))

    @property
    def reason(self) -> str:
        """The reason that a transport gave for the connection's end, or ""."""
        buffer = ffi.new("char[]", REASON_MAX)
        self._call(lib.psc_conn_reason, self.handle, buffer)
        return text(buffer)

    def set_error(self, error: PscomError | None) -> None:
        """Let the core know the reason for the connection's end, or for which connecting failed;
        None: there is none any more."""
        self._call(lib.psc_conn_set_error, self.handle, str(error or "").encode(errors="replace"))

    def counters(self) -> dict[str, int]:
        """Return the counters of the connection and of its lanes' transports; all are zero once the
        worker was destroyed."""
        values = ffi.new("uint64_t[]", lib.psc_counter_count())
        self._call(lib.psc_conn_counters, self.handle, values)
        fabric = summed(partial(self._call, lib.psc_conn_fabric_counters, self.handle))
        return named_counters(values) | fabric

    def announced(self) -> Announced:
        """Return how many announced messages have no receive yet."""
        it = ffi.new("psc_announced_t *")
        self._call(lib.psc_conn_announced, self.handle, it)
        return Announced(it.sent, it.arrived, it.waits, it.peer_waits)

    # ---- connecting ----

    def begin_connecting(self) -> None:
        """Change the state from LAZY to CONNECTING; in any other state nothing happens."""
        self._call(lib.psc_conn_connecting, self.handle)

    def install(self, lanes: list[Lane], params: Params) -> None:
        """Let the lanes carry the messages of the connection, which owns them from now on."""
        handles = [lane.handle for lane in lanes]
        installed = lib.psc_conn_install(self.handle, handles, len(handles), raw_params(params))
        check(installed, "install the lanes")
        for lane in lanes:
            lane.installed()

    def call(self) -> bool:
        """Call the connection's rank, as `Worker.join` allows. Returns False, and changes nothing,
        if it cannot be called."""
        called = self._call(lib.psc_conn_call, self.handle, 0, gone=lib.PSC_ERR_CLOSED)
        return bool(called == lib.PSC_OK)

    def call_state(self) -> tuple[int, int]:
        """Return the `CallState` of the connection, and the id of the peer's process, 0 if that is
        not known."""
        process = ffi.new("int *")
        return lib.psc_conn_call_state(self.handle, process), process[0]

    def hang_up(self) -> None:
        """Drop the lane of a call that has not come up."""
        lib.psc_conn_hang_up(self.handle)

    # ---- while it is up ----

    def rates(self) -> tuple[Moved, ...]:
        """Take the times of the connection's copied messages, and of those fetched by gets; () if
        there are not enough of them for a correction."""
        raw = ffi.new("psc_moved_t[2]")
        self._call(lib.psc_conn_rates, self.handle, raw, raw + 1)
        both = tuple(Moved(it.messages, it.bytes, it.ns) for it in raw)
        return both if any(map(any, both)) else ()

    def adapt(self, params: Params) -> None:
        """Use other parameters for messages that are sent from now on."""
        self._call(lib.psc_conn_adapt, self.handle, raw_params(params))

    @property
    def lane_lost(self) -> bool:
        """Whether a lane has failed, and the connection is about to fail, too."""
        return bool(lib.psc_conn_lane_lost(self.handle))

    def lost_lanes(self, lanes: int) -> dict[int, str]:
        """Return the lanes that the connection has lost and goes on without, with the reasons."""
        reason = ffi.new("char[]", REASON_MAX)
        lost: dict[int, str] = {}
        for lane in range(lanes):
            if lib.psc_conn_rail_lost(self.handle, lane, reason):
                lost[lane] = text(reason)
        return lost

    def join_begin(self, lane: int) -> bool:
        """Begin to connect a new lane in place of this lost one. Returns False if the lost
        lane has not ended on this side yet."""
        return bool(lib.psc_conn_join_begin(self.handle, lane) == lib.PSC_OK)

    def join(self, lane: int, joined: Lane) -> None:
        """Let the lane `joined`, which is up, take the place of the lost one."""
        check(lib.psc_conn_join(self.handle, lane, joined.handle), "join a rail again")
        joined.installed()

    def join_fail(self, lane: int) -> None:
        """Note that the lane in place of a lost one has not come up."""
        lib.psc_conn_join_fail(self.handle, lane)

    # ---- the end ----

    def fail(self, status: int) -> None:
        """End the connection with this status."""
        lib.psc_conn_fail(self.handle, status)

    def peer_ended(self, last: bool) -> bool:
        """Deliver the data of a dead peer that has arrived, then fail the connection. If more data
        may be in flight, returns False instead of failing the connection, except in the `last`
        call."""
        return bool(lib.psc_conn_peer_ended(self.handle, last) <= lib.PSC_OK)

    def close(self) -> None:
        """Close the connection after the data that is queued was sent."""
        self._call(lib.psc_conn_close, self.handle)


def raw_params(params: Params) -> Any:
    raw = ffi.new("psc_proto_params_t *")
    raw.eager_max = params.eager_max
    raw.try_max = params.try_max
    raw.zcopy_min = params.zcopy_min
    raw.scheme = SCHEMES[params.scheme]
    raw.fragment = params.fragment
    return raw


def named_counters(values: Any) -> dict[str, int]:
    return {text(lib.psc_counter_name(i)): int(value) for i, value in enumerate(values)}


def summed(fill: Callable[[Any, int], int]) -> dict[str, int]:
    """Return the counters that a function of the core fills in. Those with the same name, which
    several lanes or interfaces have, are added up."""
    counted = ffi.new("psc_counted_t[]", _COUNTED_MAX)
    named: dict[str, int] = {}
    for i in range(fill(counted, _COUNTED_MAX)):
        name = text(counted[i].name)
        named[name] = named.get(name, 0) + int(counted[i].value)
    return named
