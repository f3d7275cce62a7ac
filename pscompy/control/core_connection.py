"""Connections of the core, as the control plane calls them by their handles.

Every method may be called from any thread; none waits for the network.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from pscompy.api.c.guard import guard
from pscompy.control.lane import REASON_MAX, Lane, text
from pscompy.control.selection import SCHEMES, Moved, Params
from pscompy.core import check, ffi, lib

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


class CoreConnections:
    """The connections of one worker of the core. A call that may meet the destruction of the
    worker, or of the connection whose handle it is given, holds `guard`."""

    ERR_CONNECT: int = lib.PSC_ERR_CONNECT
    ERR_CLOSED: int = lib.PSC_ERR_CLOSED
    ERR_PEER_LOST: int = lib.PSC_ERR_PEER_LOST

    _destroyed = False  # whether the worker was destroyed, so that no handle is valid

    def set_rank(self, handle: Any, rank: int) -> None:
        """Let this connection, which was created with rank -1, be the one with the rank."""
        with guard:
            if not self._destroyed:
                lib.psc_conn_set_rank(handle, rank)

    def connection_state(self, handle: Any) -> ConnState:
        with guard:
            if self._destroyed:
                return ConnState.CLOSED
            return ConnState(lib.psc_conn_state(handle))

    def connection_reason(self, handle: Any) -> str:
        """Return the reason that a transport gave for the connection's end, or ""."""
        buffer = ffi.new("char[]", REASON_MAX)
        with guard:
            if not self._destroyed:
                lib.psc_conn_reason(handle, buffer)
        return text(buffer)

    def connection_counters(self, handle: Any) -> dict[str, int]:
        """Return the counters of a connection and of its lanes' transports."""
        values = ffi.new("uint64_t[]", lib.psc_counter_count())
        fabric: dict[str, int] = {}
        with guard:
            if not self._destroyed:
                lib.psc_conn_counters(handle, values)
                fabric = summed(partial(lib.psc_conn_fabric_counters, handle))
        return named_counters(values) | fabric

    def announced(self, handle: Any) -> Announced:
        """Return how many announced messages of a connection have no receive yet."""
        it = ffi.new("psc_announced_t *")
        with guard:
            if not self._destroyed:
                lib.psc_conn_announced(handle, it)
        return Announced(it.sent, it.arrived, it.waits, it.peer_waits)

    def begin_connecting(self, handle: Any) -> None:
        """Move the connection from LAZY to CONNECTING; in any other state nothing happens."""
        with guard:
            if not self._destroyed:
                lib.psc_conn_connecting(handle)

    def install(self, handle: Any, lanes: list[Lane], params: Params) -> None:
        """Let the lanes carry the messages of the connection, which owns them from now on."""
        handles = [lane.handle for lane in lanes]
        installed = lib.psc_conn_install(handle, handles, len(handles), raw_params(params))
        check(installed, "install the lanes")
        for lane in lanes:
            lane.installed()

    def rates(self, handle: Any) -> tuple[Moved, ...]:
        """Take the times of the connection's copied messages, and of those fetched by gets; () if
        there are not enough of them for a correction."""
        raw = ffi.new("psc_moved_t[2]")
        with guard:
            if not self._destroyed:
                lib.psc_conn_rates(handle, raw, raw + 1)
        both = tuple(Moved(it.messages, it.bytes, it.ns) for it in raw)
        return both if any(map(any, both)) else ()

    def adapt(self, handle: Any, params: Params) -> None:
        """Use other parameters for messages that are sent from now on."""
        with guard:
            if not self._destroyed:
                lib.psc_conn_adapt(handle, raw_params(params))

    def call(self, handle: Any) -> bool:
        """Call the connection's rank, as `join` allows. Returns False, and changes nothing, if it
        cannot be called."""
        with guard:
            return not self._destroyed and bool(lib.psc_conn_call(handle, 0) == lib.PSC_OK)

    def call_state(self, handle: Any) -> tuple[int, int]:
        """Return the `CallState` of the connection, and the id of the peer's process, 0 if that is
        not known."""
        process = ffi.new("int *")
        return lib.psc_conn_call_state(handle, process), process[0]

    def hang_up(self, handle: Any) -> None:
        """Drop the lane of a call that has not come up."""
        lib.psc_conn_hang_up(handle)

    def fail(self, handle: Any, status: int) -> None:
        """End the connection with this status."""
        lib.psc_conn_fail(handle, status)

    def peer_ended(self, handle: Any, last: bool) -> bool:
        """Deliver the data of a dead peer that has arrived, then fail the connection. If more data
        may be in flight, returns False instead of failing the connection, except in the `last`
        call."""
        return bool(lib.psc_conn_peer_ended(handle, last) <= lib.PSC_OK)

    def lane_lost(self, handle: Any) -> bool:
        """Return whether a lane of the connection has failed, and the connection is about to fail,
        too."""
        return bool(lib.psc_conn_lane_lost(handle))

    def lost_lanes(self, handle: Any, lanes: int) -> dict[int, str]:
        """Return the lanes that the connection has lost and goes on without, with the reasons."""
        reason = ffi.new("char[]", REASON_MAX)
        lost: dict[int, str] = {}
        for lane in range(lanes):
            if lib.psc_conn_rail_lost(handle, lane, reason):
                lost[lane] = text(reason)
        return lost

    def rejoin_begin(self, handle: Any, lane: int) -> bool:
        """Begin to connect a new lane in place of this lost one. Returns False if the lost
        lane has not ended on this side yet."""
        return bool(lib.psc_conn_join_begin(handle, lane) == lib.PSC_OK)

    def rejoin(self, handle: Any, lane: int, joined: Lane) -> None:
        """Let the lane `joined`, which is up, take the place of the lost one."""
        check(lib.psc_conn_join(handle, lane, joined.handle), "join a rail again")
        joined.installed()

    def rejoin_fail(self, handle: Any, lane: int) -> None:
        """Note that the lane in place of a lost one has not come up."""
        lib.psc_conn_join_fail(handle, lane)

    def close_connection(self, handle: Any) -> None:
        """Close the connection after the data that is queued was sent."""
        with guard:
            if not self._destroyed:
                lib.psc_conn_close(handle)

    def _destroy_connection(self, handle: Any) -> None:
        with guard:
            if not self._destroyed:
                lib.psc_conn_destroy(handle)


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
