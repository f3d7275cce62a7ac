"""The directory of nodes in one gateway, and the routing of frames.

Processes and neighbouring gateways are members, each at the other end of a trunk. Gateways report
to each other which modules they lead to, and over how many gateways; a frame takes the shortest
way. A frame names the module and the node of its destination and of its source. This module does no
I/O but the calls of `send`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pscompy_gateway.join import Gathering
from pscompy_gateway.trunk import LOAD_MAX, Frame

HOPS_MAX = 8  # highest number of gateways that a frame may pass
MODULE_MAX = 65535
RANK_MAX = (1 << 31) - 1
# maximum number of nodes that are remembered although they are not connected here
NODES_MAX = 1 << 14
# Kinds of frames that a process may send, about itself only; others are sent by gateways only.
OF_PROCESSES = frozenset(("hello", "tunnel", "find", "join"))


class Member:
    """The process or gateway at the other end of a trunk (a connection for frames); `send(frame)`
    sends a frame to it. `owner` identifies its session: a process that reconnects has the same
    owner."""

    def __init__(self, send: Callable[[Frame], object], data: str, owner: str = "") -> None:
        self.send = send
        self.owner = owner
        self.data = data  # this gateway's address for data connections, in the member's network
        self.node = 0
        self.module = -1
        self.rank: int | None = None  # the rank in its World of a process that has one
        self.name = ""
        # if this member is a gateway: the hops from it to each module; None if it is a process
        self.reaches: dict[int, int] | None = None
        # if this member is a gateway: the bytes in flight through it, as it has reported
        self.load = 0
        self.since = time.time()


class Switchboard:
    """The members of a gateway and the routing of frames between them.

    `changed()` is called when the ways to other modules have changed; `load()` returns the load of
    this gateway as fields of a frame.
    """

    def __init__(
        self,
        name: str,
        node: int,
        changed: Callable[[], object],
        load: Callable[[], Mapping[str, int]],
    ) -> None:
        self.name = name
        self.node = node
        self.nodes: dict[int, Member] = {}
        self._changed = changed
        self._load = load
        self._gatherings: dict[str, Gathering] = {}
        # nodes that have disconnected from this gateway, or that a neighbour gateway has reported
        # gone
        self._left: OrderedDict[int, bool] = OrderedDict()
        # node -> neighbour gateway that leads to it
        self._behind: OrderedDict[int, Member] = OrderedDict()

    @property
    def gateways(self) -> list[Member]:
        return [member for member in self.nodes.values() if member.reaches is not None]

    @property
    def processes(self) -> list[Member]:
        return [member for member in self.nodes.values() if member.reaches is None]

    def rank(self, node: int) -> int | None:
        """Return the rank of a process in its World, if it has one and is connected here."""
        return self.nodes[node].rank if node in self.nodes else None

    def ways(self) -> Iterator[tuple[Member, int]]:
        """Yield (gateway, module) for each remote module and each neighbour gateway on a shortest
        way."""
        for module, hops in self._distances().items():
            if hops:
                yield from ((it, module) for it in self._next(module))

    # ---- members ----

    def leave(self, member: Member) -> None:
        """Remove a member whose trunk has ended."""
        self._part(member)
        if not member.node or self.nodes.get(member.node) is not member:
            return
        del self.nodes[member.node]
        if member.reaches is None:
            self._broadcast_gone(member, {"kind": "gone", "about": member.node})
        for node in [node for node, at in self._behind.items() if at is member]:
            del self._behind[node]
        self._announce()

    def take(self, member: Member, frame: Frame) -> None:
        """Handle a frame that has arrived. A malformed frame may raise any exception, a frame that
        is not permitted raises `ValueError`."""
        kind = frame["kind"]
        handler = _HANDLERS[kind]
        if not member.node and kind not in ("hello", "join"):
            raise ValueError("the first frame is not a hello")
        if member.node and member.reaches is None and kind not in OF_PROCESSES:
            raise ValueError(f"a process may not send frames of kind {kind}")
        handler(self, member, frame)

    def hello(self) -> Frame:
        """Return the first frame on a trunk between gateways."""
        return {"kind": "hello", "node": self.node, "module": -1, "name": self.name, "modules": {}}

    def greet(self, member: Member, frame: Frame) -> None:
        """Register a member under the node number that its first frame, `frame`, holds. Raises
        `ValueError` if a number is out of range or the node belongs to another session."""
        node, module = int(frame["node"]), int(frame["module"])
        rank = int(frame["rank"]) if "rank" in frame else None
        member.name = str(frame.get("name", ""))
        member.reaches = {} if "modules" in frame else None
        if member.reaches is not None:  # a gateway has several sessions, so its name is the owner
            member.owner = f"gateway {member.name}"
        if not 0 < node < 1 << 64 or not -1 <= module <= MODULE_MAX:
            raise ValueError("no node, or no module, has that number")
        if not 0 <= (rank or 0) <= RANK_MAX:
            raise ValueError("no rank has that number")
        if member.node not in (0, node) or self.nodes.get(node, member).owner != member.owner:
            raise ValueError(f"node {node:x}  belongs to another session")
        member.node, member.module, member.rank = node, module, rank
        self.nodes[node] = member
        self._left.pop(node, None)
        self._behind.pop(node, None)
        self._announce()
        if member.reaches is not None:
            for gathering in self._gatherings.values():
                for known in gathering.frames():
                    member.send(known)

    def _on_hello(self, member: Member, frame: Frame) -> None:
        what = {"data": member.data, "load": dict(self._load())}
        member.send({**self.hello(), "kind": "welcome", **what})
        self.greet(member, frame)

    # ---- modules ----

    def _distances(self) -> dict[int, int]:
        """Return the hops (gateways to pass) to each module; 0 if a process of the module is
        connected to this gateway."""
        hops = {member.module: 0 for member in self.processes}
        for member in self.gateways:
            for module, distance in (member.reaches or {}).items():
                hops[module] = min(hops.get(module, HOPS_MAX), distance + 1)
        return {module: count for module, count in hops.items() if count < HOPS_MAX}

    def _next(self, module: int) -> list[Member]:
        best = self._distances().get(module, 0) - 1
        return [it for it in self.gateways if (it.reaches or {}).get(module) == best]

    def _announce(self) -> None:
        """Send the number of hops to each module to all neighbour gateways; a neighbour is not told
        about modules that it reaches in fewer hops itself."""
        distances = self._distances()
        for member in self.gateways:
            known = member.reaches or {}
            ours = {
                str(module): hops
                for module, hops in distances.items()
                if known.get(module, HOPS_MAX) >= hops
            }
            member.send({"kind": "modules", "modules": ours})
        self._changed()

    def _on_modules(self, member: Member, frame: Frame) -> None:
        reaches = {int(module): int(hops) for module, hops in frame["modules"].items()}
        if not all(0 <= module <= MODULE_MAX and hops >= 0 for module, hops in reaches.items()):
            raise ValueError("no module has that number")
        if reaches != member.reaches:
            member.reaches = reaches
            self._announce()

    def announce_load(self) -> None:
        """Report the load of this gateway to all members, which choose gateways by it."""
        for member in self.nodes.values():
            member.send({"kind": "load", **self._load()})

    def _on_load(self, member: Member, frame: Frame) -> None:
        member.load = min(max(int(frame["bytes"]), 0), LOAD_MAX)

    # ---- forwarding of frames ----

    def _pass(self, frame: Frame) -> bool:
        """Send a frame one hop further. Returns False if no way is known, or if the frame has
        passed HOPS_MAX gateways."""
        to = self.nodes.get(frame["node"])
        ways = [to] if to else self._next(int(frame["module"]))
        frame["hops"] = int(frame.get("hops", 0)) + 1
        if not ways or frame["hops"] > HOPS_MAX:
            return False
        ways[frame["node"] % len(ways)].send(frame)
        return True

    def _answer(self, kind: str, frame: Frame) -> None:
        """Send an answer of this kind to the process that sent `frame`. The answer concerns the
        node that `frame` was addressed to."""
        back = {"module": frame["from_module"], "node": frame["from_node"]}
        left = frame["node"] in self._left
        self._pass({"kind": kind, "about": frame["node"], "left": left, **back})

    def _check_source(self, member: Member, frame: Frame) -> None:
        """Check the source of a frame that arrived on the trunk of `member`, and remember which
        neighbour gateway leads to the source. Raises `ValueError` if a process names another
        process as the source."""
        node = int(frame["from_node"])
        if member.reaches is None and (node, frame["from_module"]) != (member.node, member.module):
            raise ValueError("a process may send frames about itself only")
        if member.reaches is not None and node not in self.nodes:
            _remember(self._behind, node, member)
            self._left.pop(node, None)

    def _on_tunnel(self, member: Member, frame: Frame) -> None:
        self._check_source(member, frame)
        if not self._pass(frame):
            self._answer("absent", frame)

    def _on_find(self, member: Member, frame: Frame) -> None:
        if frame["node"] in self.nodes:
            self._answer("found", frame)
        else:
            self._on_tunnel(member, frame)

    def _on_answer(self, member: Member, frame: Frame) -> None:
        self._pass(frame)

    def _on_leaving(self, member: Member, frame: Frame) -> None:
        """Handle the report of a neighbour gateway that it is being stopped, and use it no
        longer."""
        if member.reaches:
            member.reaches = {}
            self._announce()

    def _on_gone(self, member: Member, frame: Frame) -> None:
        """Handle the report of a neighbour gateway that a node has left. The report is ignored if
        the node is a member here or behind another neighbour."""
        node = int(frame["about"])
        if node not in self.nodes and self._behind.get(node, member) is member:
            self._broadcast_gone(
                member, {"kind": "gone", "about": node, "hops": frame.get("hops", 0)}
            )

    def _broadcast_gone(self, member: Member, frame: Frame) -> None:
        _remember(self._left, frame["about"], True)
        self._behind.pop(frame["about"], None)
        for other in self.processes:
            other.send(frame)
        self._flood(frame, member)

    def _flood(self, frame: Frame, source: Member) -> None:
        """Send a frame to all neighbour gateways except `source`, from which the frame came."""
        hops = int(frame.get("hops", 0)) + 1
        for member in self.gateways:
            if member is not source and hops <= HOPS_MAX:
                member.send({**frame, "hops": hops})

    # ---- meetings ----

    def _on_join(self, member: Member, frame: Frame) -> None:
        """Handle a piece of the text that rank 0 of a module gives to a meeting (see `Gathering`).
        The frame was sent by that rank itself, which has no node number, or forwarded by a
        neighbour gateway."""
        name = str(frame["name"])
        there = self._gatherings.setdefault(name, Gathering(name, int(frame["modules"])))
        if there.take(member.send, frame, forwarded=member.reaches is not None):
            self._flood(frame, member)

    def _part(self, member: Member) -> None:
        for name, gathering in list(self._gatherings.items()):
            for frame in gathering.leave(member.send):
                self._flood(frame, member)
            if gathering.empty:
                del self._gatherings[name]

    def _on_parted(self, member: Member, frame: Frame) -> None:
        gathering = self._gatherings.get(str(frame["name"]))
        if gathering is not None and gathering.forget(int(frame["module"]), str(frame["member"])):
            self._flood(frame, member)


def _remember(table: OrderedDict[int, Any], node: int, what: object) -> None:
    """Add an entry to the table as its newest one, and remove the oldest entry if there are more
    than NODES_MAX."""
    table[node] = what
    table.move_to_end(node)
    if len(table) > NODES_MAX:
        table.popitem(last=False)


_HANDLERS: dict[str, Any] = {
    "hello": Switchboard._on_hello,
    "modules": Switchboard._on_modules,
    "load": Switchboard._on_load,
    "tunnel": Switchboard._on_tunnel,
    "find": Switchboard._on_find,
    "found": Switchboard._on_answer,
    "absent": Switchboard._on_answer,
    "gone": Switchboard._on_gone,
    "join": Switchboard._on_join,
    "leaving": Switchboard._on_leaving,
    "parted": Switchboard._on_parted,
}
