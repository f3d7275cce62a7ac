"""The gateway process: its sessions on each fabric, its trunks (see trunk.py), and its directory of
nodes.

The event loop serves trunks and accepts data connections; C code forwards packets, on a thread per
fabric, without the GIL.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pscompy import Connection, ConnectionState, PscomError, Session, Socket, capi
from pscompy.discovery.registry import transport_names
from pscompy_gateway import native
from pscompy_gateway.daemon.directory import Member, Switchboard
from pscompy_gateway.join import pieces
from pscompy_gateway.trunk import GATEWAY_MODULE, BadFrame, Frame, Trunk, keep, node_number, session

logger = logging.getLogger("pscompy.gateway")

SWEEP = 0.1  # seconds between checks whether data connections are still up
LOAD_STEP = 256 << 10  # least change of the gateway's load, in bytes, that is reported
DRAIN_SECONDS = 5.0  # longest wait until all packets have been sent, when the gateway stops
PORT = 4470  # default port of a fabric


class Fabric(NamedTuple):
    """One network of a gateway: the transports that it uses there, its address, and the variables
    `own` of its sessions there, which take precedence over the environment."""

    transports: tuple[str, ...]
    host: str
    port: int
    own: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Fabric:
        """Parse TRANSPORT[+TRANSPORT...]@HOST[:PORT][,VARIABLE=VALUE...], or raise `ValueError`."""
        place, *words = text.split(",")
        own = dict(word.split("=", 1) for word in words if "=" in word)
        names, at, where = place.partition("@")
        host, colon, port = where.rpartition(":") if where.count(":") == 1 else (where, "", "")
        if not at or not host or not names or (colon and not port.isdecimal()):
            raise ValueError(f"{text!r} is no fabric: expected TRANSPORT@HOST:PORT")
        if len(own) < len(words):
            raise ValueError(f"{text!r} is no fabric: expected VARIABLE=VALUE after a comma")
        return cls(tuple(names.split("+")), host, int(port) if colon else PORT, own)

    def __str__(self) -> str:
        own = "".join(f",{name}={value}" for name, value in self.own.items())
        return f"{'+'.join(self.transports)}@{self.host}:{self.port}{own}"

    @property
    def settings(self) -> dict[str, object]:
        """The configuration of the gateway's sessions on this fabric: only the fabric's transports
        are enabled, on its network."""
        named = {name.upper(): int(name in self.transports) for name in transport_names()}
        here = {"NETWORK": self.host, "MSA_MODULE_ID": GATEWAY_MODULE}
        return {**named, **here, **{k.removeprefix("PSP_"): v for k, v in self.own.items()}}


class _Station:
    """One fabric of a running gateway, with its sessions, listening sockets and thread."""

    def __init__(self, number: int, fabric: Fabric) -> None:
        self.number = number
        self.fabric = fabric
        self.data: Session
        self.trunks: Session
        self.data_socket: Socket
        self.trunk_socket: Socket
        self.thread: threading.Thread


class Load(NamedTuple):
    """The load of a gateway: bytes in flight through it, and the number of pairs of processes that
    use it."""

    bytes: int
    streams: int

    def fields(self) -> dict[str, int]:
        """Return the load as fields of a frame."""
        return {"bytes": self.bytes, "streams": self.streams}

    def toward(self, now: Load) -> Load:
        """Return the mean of this load and the current load `now`, which smooths short peaks."""
        return Load((self.bytes + now.bytes) // 2, now.streams)

    def differs(self, old: Load) -> bool:
        """Whether the load must be reported again, because it differs enough from `old`, the load
        that was reported last."""
        nbytes, streams = max(LOAD_STEP, old.bytes // 4), max(1, old.streams // 4)
        return abs(self.bytes - old.bytes) > nbytes or abs(self.streams - old.streams) > streams


class Daemon:
    """A gateway; `run` serves until `stop` is called.

    `neighbours` are the addresses HOST:PORT of other gateways. `bound` is the maximum number of
    bytes in flight to all receivers, `share` to one receiver. `burden` is a number of bytes that is
    added to the load in reports, so that processes prefer other gateways.
    """

    def __init__(
        self,
        fabrics: Sequence[Fabric],
        neighbours: Sequence[str],
        bound: int,
        share: int,
        burden: int = 0,
    ) -> None:
        self._neighbours = neighbours
        self.name = f"{os.uname().nodename}.{os.getpid()}.{os.urandom(3).hex()}"
        self._lib = native.load().lib
        self._ffi = native.load().ffi
        self._hub = self._lib.gw_hub_create(capi.table(), bound, share)
        if not self._hub:
            raise MemoryError("no memory for the tables of the gateway")
        self._stations = [_Station(i, fabric) for i, fabric in enumerate(fabrics)]
        self._burden = burden
        self._load, self._reported = Load(burden, 0), Load(-1, -1)
        self._board = Switchboard(
            self.name, node_number(), self._set_ways, lambda: self._load.fields()
        )
        self._members: set[Member] = set()
        self._data_connections: dict[int, Connection] = {}
        self._keys = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._started = time.time()

    # ---- begin and end ----

    async def run(self) -> None:
        try:
            for station in self._stations:
                self._open(station)
            for address in self._neighbours:
                self._neighbour(address)
            print(f"gateway {self.name} serves", *self.addresses, flush=True)
            sweeping = asyncio.create_task(self._sweep_on())
            await self._stopped.wait()
            await self._drain()
            sweeping.cancel()
        finally:
            await self._close()

    async def _drain(self) -> None:
        """Notify all members (the processes and gateways connected here) to use other gateways, and
        wait until all packets here have been sent, at most DRAIN_SECONDS."""
        for member in self._members:
            member.send({"kind": "leaving"})
        until = time.monotonic() + DRAIN_SECONDS
        before = -1
        while self._members and time.monotonic() < until:
            await asyncio.sleep(SWEEP)
            counters = self.status()["counters"]
            if counters["held"] == 0 and counters["packets"] == before:
                return
            before = counters["packets"]

    @property
    def addresses(self) -> list[str]:
        return [str(it.trunk_socket.address) for it in self._stations]

    def stop(self) -> None:
        self._stopped.set()

    def _open(self, station: _Station) -> None:
        fabric, loop = station.fabric, asyncio.get_running_loop()
        # A gateway runs unattended, so by default its log has warnings, too.
        warned = {"DEBUG": os.environ.get("PSP_DEBUG") or "2"}
        station.trunks = session({**warned, **fabric.settings})
        station.data = session(
            {
                **fabric.settings,
                "RENDEZVOUS": "inf",
                "EAGER_WINDOW": "16M",
                # By default the threads of the fabrics, one each, do not spin: on few processors
                # they would delay each other.
                "SPIN_US": os.environ.get("PSP_SPIN_US") or "0",
            }
        )
        for it in (station.trunks, station.data):
            wrong = {
                name: it.transports.get(name, "no such transport") for name in fabric.transports
            }
            if all(wrong.values()):
                raise PscomError(
                    f"{fabric.host}: " + "; ".join(f"{k}: {v}" for k, v in wrong.items())
                )
        number = self._lib.gw_hub_fabric(self._hub, capi.worker(station.data))
        assert number == station.number
        station.data_socket = capi.listen(
            station.data,
            fabric.host,
            0,
            lambda it: loop.call_soon_threadsafe(self._joined, station, it),
        )
        station.thread = threading.Thread(
            target=self._lib.gw_hub_serve, args=(self._hub, number), name=f"gateway {fabric.host}"
        )
        station.thread.start()
        station.trunk_socket = station.trunks.listen(fabric.host, fabric.port)
        self._spawn(self._admit(station))

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lib.gw_hub_stop(self._hub)
        for station in self._stations:
            if hasattr(station, "thread"):
                station.thread.join()
        self._close_sessions()

    def _close_sessions(self) -> None:
        """End the connections of all fabrics, then the hub, then the fabrics. The hub still holds
        packets, each received by one fabric and sent by another, so it frees them before any fabric
        ends."""
        data = [it.data for it in self._stations if hasattr(it, "data")]
        for station in self._stations:
            if hasattr(station, "trunks"):
                station.trunks.close()
        hub, self._hub = self._hub, self._ffi.NULL
        ended = [capi.disconnect(it) for it in data]
        if all(ended):
            self._lib.gw_hub_destroy(hub)
        for it in data:
            it.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- data connections ----

    def _joined(self, station: _Station, connection: Connection) -> int:
        """Give a connection to the hub, unless the hub has ended. Returns the number of the
        connection."""
        key = next(self._keys)
        self._data_connections[key] = connection
        conn = capi.connection(connection)
        if self._hub:
            self._lib.gw_hub_join(self._hub, station.number, conn, key)
        return key

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            for key, connection in list(self._data_connections.items()):
                if connection.state is not ConnectionState.UP:
                    self._lib.gw_hub_leave(self._hub, key)
                    del self._data_connections[key]
            self._set_ways()
            self._look()

    def _look(self) -> None:
        """Sample the load of this gateway, and report it to all members (the processes and gateways
        connected here) if it has changed."""
        found = self._ffi.new("gw_load_t *")
        self._lib.gw_hub_load(self._hub, found)
        now = Load(found.bytes + self._burden, found.streams)
        self._load = self._load.toward(now)
        if self._load.differs(self._reported):
            self._reported = self._load
            self._board.announce_load()

    # ---- trunks ----

    async def _admit(self, station: _Station) -> None:
        async for connection in station.trunk_socket:
            self._spawn(self._serve(station, connection))

    def _member(self, station: _Station, trunk: Trunk) -> Member:
        owner = str(trunk.connection.peer)
        member = Member(trunk.send, station.data_socket.address, owner)
        self._members.add(member)
        return member

    async def _serve(self, station: _Station, connection: Connection) -> None:
        trunk = Trunk(connection)
        member = self._member(station, trunk)
        try:
            while True:
                self._take(member, await trunk.receive())
        except BadFrame as error:
            logger.warning("%.200s", error)
        except PscomError as error:
            logger.info("%s: %s", connection.peer, error)
        except Exception as error:  # raised by a malformed frame, which ends only this trunk
            logger.warning("%s sent a malformed frame: %.200r", connection.peer, error)
        finally:
            self._leave(member)
            trunk.close()

    def _leave(self, member: Member) -> None:
        self._members.discard(member)
        self._board.leave(member)

    def _take(self, member: Member, frame: Frame) -> None:
        if frame["kind"] == "status":
            for piece in pieces(json.dumps(self.status())):
                member.send({"kind": "status", **piece})
        else:
            self._board.take(member, frame)

    # ---- neighbours ----

    def _neighbour(self, address: str) -> None:
        """Keep a trunk (a connection for frames) and a data connection to another gateway."""
        station = self._station_for(address)

        async def attend(trunk: Trunk) -> None:
            member = self._member(station, trunk)
            try:
                trunk.send(self._board.hello())
                welcome = await trunk.receive()
                await self._open_data_connection(
                    station, str(welcome["data"]), int(welcome["node"])
                )
                self._board.greet(member, welcome)
                while True:
                    self._take(member, await trunk.receive())
            finally:
                self._leave(member)

        self._spawn(keep(station.trunks, address, attend, lambda _: None))

    def _station_for(self, address: str) -> _Station:
        """Return the fabric whose network contains `address`. Raises `PscomError` if there is
        none, or no route to the address."""
        host, _, port = address.rpartition(":")
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((host, int(port)))
                ours = probe.getsockname()[0]
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise PscomError(f"the neighbour {address} cannot be reached: {reason}") from error
        for station in self._stations:
            if station.fabric.host == ours:
                return station
        raise PscomError(f"no fabric of this gateway leads to {address}")

    async def _open_data_connection(self, station: _Station, address: str, node: int) -> None:
        connection = station.data.connect(address)
        capi.begin_open(connection)
        while connection.state is ConnectionState.CONNECTING:
            await asyncio.sleep(0.005)
        if connection.state is not ConnectionState.UP:
            raise PscomError(f"no data connection to {address}: {connection.explain()}")
        key = self._joined(station, connection)
        self._lib.gw_hub_greet(self._hub, key, node, self._board.node)

    def _set_ways(self) -> None:
        """Direct packets for other modules to the neighbour gateways that lead there. This method
        is called every SWEEP seconds, so a later call adds a neighbour that has not registered
        yet."""
        ways = list(self._board.ways())
        rows = self._ffi.new("gw_hub_way_t[]", [(member.node, module) for member, module in ways])
        self._lib.gw_hub_set_ways(self._hub, rows, len(ways))
        for member in {member for member, _ in ways}:
            self._lib.gw_hub_set_load(self._hub, member.node, member.load)

    # ---- status ----

    def status(self) -> dict[str, Any]:
        """Return counters, connections, and the directory of nodes, for `pscompy gateway
        status`."""
        counters = self._ffi.new("gw_hub_counters_t *")
        self._lib.gw_hub_count(self._hub, counters)
        return {
            "name": self.name,
            "pid": os.getpid(),
            "seconds": round(time.time() - self._started, 3),
            "fabrics": [
                {
                    "transports": list(it.fabric.transports),
                    "address": it.trunk_socket.address,
                }
                for it in self._stations
            ],
            "counters": _fields(self._ffi, counters[0]),
            "load": self._load.fields(),
            "modules": sorted({it.module for it in self._board.processes}),
            "members": [
                {
                    "node": it.node,
                    "module": it.module,
                    "gateway": it.reaches is not None,
                    "seconds": round(time.time() - it.since, 3),
                }
                for it in self._members
                if it.node
            ],
            "peers": [{**it, "rank": self._board.rank(it["node"])} for it in self._rows("peer")],
            "streams": self._rows("stream"),
        }

    def _rows(self, what: str) -> list[dict[str, int]]:
        """Return the counters that the C code keeps for each peer or stream; `what` is "peer" or
        "stream"."""
        count = getattr(self._lib, f"gw_hub_{what}s")
        room = count(self._hub, self._ffi.NULL, 0)
        rows = self._ffi.new(f"gw_{what}_counters_t[]", room)
        there = min(room, count(self._hub, rows, room))
        return [_fields(self._ffi, rows[i]) for i in range(there)]


def _fields(ffi: Any, struct: Any) -> dict[str, int]:
    return {name: int(getattr(struct, name)) for name, _ in ffi.typeof(struct).fields}
