"""The agent of a session: manages the connections of a process to its gateways.

The agent has a thread of its own. It keeps a trunk and a data connection to every gateway, notifies
the transport in C which gateways are connected, and is the relay that carries the handshakes of its
session in tunnels.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pscompy import Connection, ConnectionState, capi
from pscompy.plugin import Carrier, Dialed, Setting, addresses
from pscompy_gateway import native
from pscompy_gateway.transport import servers
from pscompy_gateway.transport.location import Location
from pscompy_gateway.transport.reachability import Reach
from pscompy_gateway.transport.tunnels import Accept, Tunnels
from pscompy_gateway.trunk import LOAD_MAX, Frame, Trunk, keep, node_number, session

logger = logging.getLogger("pscompy.gateway")

TICK = 0.1  # seconds between checks for packets that are not acknowledged
# seconds without a change of the set of connected gateways, before their reports that a node has
# left are final
STEADY = 1.0
OPEN_SECONDS = 10.0  # seconds for the data connection to come up
UNREACHABLE_GRACE = 2.0  # seconds after the report of a lost node, before its tunnels are closed
LOST = 5.0  # seconds during which a lost node is not dialled again
READY = 3.0  # seconds that listen() waits until a gateway knows this process


def carry(settings: Sequence[Setting], rank: int) -> Carrier:
    """Start the agent of a session, the thread that keeps connections to the gateways. Returns the
    session's transport `gateway`, and the agent as the relay that carries its handshakes. Raises
    `BadRoutes` if PSP_GW_SERVER is malformed."""
    texts = {setting.name: setting.text for setting in settings}
    routes = servers.parse(texts["SERVER"])
    agent = Agent(routes, int(texts["MODULE"]), texts["KEY"], texts["KEY_FILE"], rank)
    handle = Setting("agent", "", agent.handle)
    return Carrier(native.ops(), [*settings, handle], agent.close, agent)


class _Gateway:
    """A gateway of PSP_GW_SERVER, whether connected or not."""

    def __init__(self, index: int, address: str) -> None:
        self.index = index
        self.address = address
        self.trunk: Trunk | None = None  # the connection for frames; None while there is none
        self.data: Connection | None = None
        self.reason = "no answer so far"
        self.tried = False  # an attempt to connect has failed, or the gateway was lost


class Agent:
    """The agent of one session; implements `pscompy.plugin.Relay`."""

    def __init__(
        self, routes: servers.Routes, module: int, key: str, key_file: str, rank: int
    ) -> None:
        """`rank` is the session's rank in its World, which gateways show; -1: it has none."""
        self.module = module
        self._rank = {"rank": rank} if rank >= 0 else {}  # a field of the first frame
        self.node = node_number()
        self._routes = routes
        self._names = node_names()
        settings = {"KEY": key, "KEY_FILE": key_file, "MSA_MODULE_ID": module}
        # the session makes no retries, because `keep` does
        self._trunks = session({**settings, "RETRY": 0})
        self._fabric = session({**settings, "RENDEZVOUS": "inf", "EAGER_WINDOW": "16M"})
        worker = capi.worker(self._fabric)
        lib = self._lib = native.load().lib
        self._native = lib.gw_agent_create(capi.table(), worker, self.node, module)
        if not self._native:
            raise MemoryError("no memory or no descriptors for the connections to gateways")
        self.handle = int(native.load().ffi.cast("uintptr_t", self._native))
        self._gateways = [_Gateway(i, text) for i, text in enumerate(routes.gateways)]
        self._kept: list[Connection] = []  # connections that the C code may still use
        self._listeners: dict[int, Accept] = {}
        self._numbers = itertools.count(1)
        me = {"from_module": module, "from_node": self.node, "names": self._names}
        self._tunnels = Tunnels(me, self._listeners, self._post)
        self._reach: dict[int, Reach] = {}
        self._losing: set[int] = set()  # nodes that were reported to the transport as lost
        # node -> (monotonic time from which it may be dialled again, reason)
        self._lost: dict[int, tuple[float, str]] = {}
        # set once a gateway knows this process, or all gateways have failed
        self._ready = threading.Event()
        self._changed = time.monotonic()  # when a gateway last connected or disconnected
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="pscompy gateways", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Release everything; called after the session has closed the transport."""
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()
        if capi.disconnect(self._fabric):
            self._lib.gw_agent_destroy(self._native)
        self._fabric.close()
        self._trunks.close()

    # ---- the relay; called in any thread ----

    def listen(self, accept: Accept) -> str:
        """Register a listener and return its address. Waits up to READY seconds until a gateway
        knows this node: a gateway reports the end of a node only if it knew that node, so peers
        must not get the address earlier."""
        self._ready.wait(READY)
        number = next(self._numbers)
        self._listeners[number] = accept
        return str(Location(self.module, self.node, number))

    def stop(self, location: str) -> None:
        self._listeners.pop(Location.parse(location).listener, None)

    def leads(self, location: str) -> bool:
        return not self._why_closed(location)

    def dial(self, location: str, done: Dialed) -> Callable[[], object]:
        cancelled = threading.Event()
        if reason := self._why_closed(location):
            done(None, reason, final=True)
            return cancelled.set

        def begin() -> None:
            if not cancelled.is_set():
                self._dial(Location.parse(location), done)

        self._loop.call_soon_threadsafe(begin)
        return cancelled.set

    def _why_closed(self, location: str) -> str:
        """Return why no gateway leads to the location, or "" if one may."""
        try:
            module = Location.parse(location).module
        except ValueError as error:
            return str(error)
        if module == self.module:
            return f"gateways lead to other modules only, not within module {module}"
        return ""

    # ---- the thread ----

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        works = [
            keep(self._trunks, it.address, partial(self._use, it), partial(self._down, it))
            for it in self._gateways
        ]
        self._tasks = [self._loop.create_task(it) for it in (*works, self._tick_on())]
        self._loop.run_forever()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    def _stop(self) -> None:
        self._closing = True
        self._tunnels.drop()
        self._loop.stop()

    async def _tick_on(self) -> None:
        while not self._closing:
            await asyncio.sleep(TICK)
            self._tick()

    # ---- gateways ----

    async def _use(self, gateway: _Gateway, trunk: Trunk) -> None:
        """Use a gateway until its trunk has ended, which raises `PscomError`."""
        me = {"node": self.node, "module": self.module, "names": self._names, **self._rank}
        trunk.send({"kind": "hello", **me})
        welcome = await trunk.receive()
        self._load(gateway, welcome["load"])
        gateway.data = await self._open_data(str(welcome["data"]))
        self._up(gateway, trunk)
        while True:
            self._on_frame(gateway, await trunk.receive())

    async def _open_data(self, address: str) -> Connection:
        data = self._fabric.connect(address)
        self._kept.append(data)
        capi.begin_open(data)
        until = time.monotonic() + OPEN_SECONDS
        while data.state is not ConnectionState.UP:
            if data.state is not ConnectionState.CONNECTING or time.monotonic() > until:
                raise ValueError(f"no data connection to {address}: {data.explain()}")
            await asyncio.sleep(0.005)
        return data

    def _note(self, kind: int, path: int = 0, conn: int = 0, node: int = 0, text: str = "") -> None:
        self._lib.gw_agent_note(self._native, kind, path, conn, node, text.encode())

    def _up(self, gateway: _Gateway, trunk: Trunk) -> None:
        assert gateway.data is not None
        conn = capi.connection(gateway.data)
        gateway.trunk = trunk
        self._changed = time.monotonic()
        self._note(self._lib.GW_NOTE_UP, gateway.index, conn, 0, gateway.address)
        self._tunnels.again()
        self._ready.set()

    def _down(self, gateway: _Gateway, reason: str) -> None:
        gateway.reason = reason
        gateway.tried = True
        if all(it.tried for it in self._gateways):
            self._ready.set()
        if gateway.trunk is None:
            return
        gateway.trunk = None
        self._changed = time.monotonic()
        self._note(self._lib.GW_NOTE_DOWN, gateway.index)
        self._tunnels.again()

    def _load(self, gateway: _Gateway, load: Frame) -> None:
        """Pass the load of a gateway on to the transport."""
        nbytes, streams = (min(int(load[name]), LOAD_MAX) for name in ("bytes", "streams"))
        self._lib.gw_agent_load(self._native, gateway.index, max(nbytes, 0), max(streams, 0))

    def _live(self) -> set[int]:
        return {it.index for it in self._gateways if it.trunk is not None}

    # ---- frames ----

    def _on_frame(self, gateway: _Gateway, frame: Frame) -> None:
        kind = frame["kind"]
        if kind == "tunnel":
            self._on_tunnel(gateway, frame)
        elif kind == "load":
            self._load(gateway, frame)
        elif kind == "leaving":
            self._down(gateway, "it is being stopped")
        elif kind in ("absent", "gone"):
            left = kind == "gone" or bool(frame.get("left"))
            self._on_missing(gateway, int(frame["about"]), left)
        elif kind == "found":
            self._reach_of(int(frame["about"])).seen(gateway.index)

    def _on_missing(self, gateway: _Gateway, node: int, left: bool) -> None:
        """Handle a gateway's report that it does not know a node, or, if `left`, that the node has
        left the gateway. Asks the other gateways for the node."""
        if node not in self._tunnels.nodes:
            return
        reach = self._reach_of(node)
        new = reach.missing(gateway.index, left)
        for it in self._gateways if new else ():
            if it is not gateway and it.index not in reach.doubtful(self._live()):
                self._ask(it, node)
        self._report_lost()

    def _reach_of(self, node: int) -> Reach:
        known = node in self._tunnels.nodes
        return self._reach.setdefault(node, Reach()) if known else Reach()

    def _report_lost(self) -> None:
        """Report to the transport the nodes that are lost: no gateway leads to them any more."""
        now = time.monotonic()
        steady = now - self._changed > STEADY
        live = self._live()
        for node in self._tunnels.nodes:
            if node not in self._losing and self._reach_of(node).lost(live, steady, now):
                self._lose(node, bool(live))

    def _lose(self, node: int, known: bool) -> None:
        """Report a node as lost. If `known`, gateways are connected, but none knows the node."""
        tried = ", ".join(f"{it.address}" for it in self._gateways)
        reason = "it has left all gateways" if known else f"no gateway leads to it (tried {tried})"
        self._note(self._lib.GW_NOTE_LOST, node=node, text=reason)
        self._losing.add(node)
        if known:
            now = time.monotonic()
            self._lost = {it: why for it, why in self._lost.items() if why[0] > now}
            self._lost[node] = now + LOST, reason
        self._loop.call_later(UNREACHABLE_GRACE, self._drop_all, node)

    def _drop_all(self, node: int) -> None:
        self._tunnels.drop(node)
        self._reach.pop(node, None)
        self._losing.discard(node)

    def _tick(self) -> None:
        self._tunnels.again(waiting=True)
        live = self._live()
        for node in self._reach.keys() - self._tunnels.nodes.keys():
            del self._reach[node]
        for node, reach in self._reach.items():
            for index in reach.doubtful(live):
                self._ask(self._gateways[index], node)
        self._report_lost()
        if self._lib.gw_agent_unsettled(self._native) or len(live) < len(self._gateways):
            self._note(self._lib.GW_NOTE_TICK)
        for it in self._gateways:
            if it.trunk and it.data and it.data.state is not ConnectionState.UP:
                it.trunk.close()

    def _ask(self, gateway: _Gateway, node: int) -> None:
        """Ask a gateway whether it knows this node."""
        me = {"from_module": self.module, "from_node": self.node}
        module = self._tunnels.nodes.get(node, -1)
        self._send(gateway, {"kind": "find", "module": module, "node": node, **me})

    def _send(self, gateway: _Gateway, frame: Frame) -> None:
        if gateway.trunk is not None:
            gateway.trunk.send(frame)

    # ---- tunnels ----

    def _dial(self, location: Location, done: Dialed) -> None:
        until, reason = self._lost.get(location.node, (0.0, ""))
        if time.monotonic() < until:
            done(None, reason, final=True)
            return
        self._lost.pop(location.node, None)
        if self._live():
            try:
                sock = self._tunnels.dial(*location)
            except OSError as error:  # no descriptor is left for a socket
                done(None, str(error))
            else:
                done(sock, "")
            return
        reasons = "; ".join(f"{it.address}: {it.reason}" for it in self._gateways)
        done(None, f"no gateway is there ({reasons})")

    def _post(self, node: int, frames: list[Frame]) -> None:
        """Send frames through one gateway, preferably one that leads to the node."""
        live = self._live()
        useful = live - self._reach_of(node).doubtful(live) or live
        if useful:
            index = sorted(useful)[node % len(useful)]
            for frame in frames:
                self._send(self._gateways[index], frame)

    def _on_tunnel(self, gateway: _Gateway, frame: Frame) -> None:
        node = int(frame["from_node"])
        self._route(node, frame.get("names"))  # the transport needs the route before the handshake
        try:
            self._tunnels.take(frame)
        except (KeyError, TypeError, ValueError) as error:
            logger.warning("node %x sent a malformed frame of a tunnel: %.200r", node, error)
            return
        self._lost.pop(node, None)
        self._reach_of(node).seen(gateway.index)

    def _route(self, node: int, names: Any) -> None:
        """Notify the transport of the gateway that the route file names for this peer, if any."""
        if not self._routes.pairs or not isinstance(names, list):
            return
        index = self._routes.between(set(self._names), {str(name) for name in names})
        if index is not None:
            self._note(self._lib.GW_NOTE_ROUTE, index, node=node)


def node_names() -> list[str]:
    """Return the names by which a route file may list this node: host name and addresses."""
    return [socket.gethostname(), *addresses()]
