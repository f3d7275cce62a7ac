"""The reliable stream that carries handshakes over frames that are lost, duplicated or
reordered; the state of nodes; and the routes of frames between gateways.
"""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from namespaces import TIMEOUT
from pscompy_gateway.daemon.directory import Member, Switchboard
from pscompy_gateway.transport.reachability import ARRIVAL, GRACE, Reach
from pscompy_gateway.transport.servers import PATHS_MAX, BadRoutes
from pscompy_gateway.transport.servers import parse as parse_servers
from pscompy_gateway.transport.tunnels import INBOX_MAX, Tunnels
from pscompy_gateway.trunk import BadFrame, parse
from pscompy_gateway.tunnel import PIECE, Tunnel

import pscompy
from tests.names import A_KEY


class Wire:
    """Two tunnel ends joined by a wire that loses, duplicates and reorders frames at random."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ends = Tunnel({"kind": "tunnel"}), Tunnel({"kind": "tunnel"})
        self.got = bytearray(), bytearray()
        self.frames: list[tuple[int, str]] = []

    def post(self, to: int, frames: list[dict[str, object]]) -> None:
        for frame in frames:
            copies = self.chance.choice((0, 1, 1, 2))
            self.frames += [(to, json.dumps(frame))] * copies

    def deliver(self) -> None:
        self.chance.shuffle(self.frames)
        frames, self.frames = self.frames, []
        for to, frame in frames:
            self.got[to].extend(self.ends[to].take(json.loads(frame)))

    def settle(self) -> None:
        """Deliver and retransmit, as timers would do, until both ends have received everything."""
        for _ in range(200):
            self.deliver()
            for end in (0, 1):
                if not all(it.over for it in self.ends):
                    self.post(1 - end, self.ends[end].again())
            if all(it.over for it in self.ends):
                return
        raise AssertionError("they do not come to an end")


@given(st.integers(), st.lists(st.integers(0, 2 * PIECE), max_size=4))
def test_what_is_given_arrives_once_and_in_order(seed, sizes):
    wire = Wire(seed)
    sent = [b"", b""]
    for size in sizes:
        for end in (0, 1):
            data = wire.chance.randbytes(size + 1)
            sent[end] += data
            wire.post(1 - end, wire.ends[end].give(data))
        wire.deliver()
    for end in (0, 1):
        wire.post(1 - end, wire.ends[end].give(b""))
    wire.settle()
    assert [bytes(got) for got in wire.got] == sent[::-1]


@pytest.mark.parametrize("offset", [-1, True, "0", None, 1.5])
def test_a_frame_that_is_none(offset):
    with pytest.raises((ValueError, KeyError)):
        Tunnel({}).take({"offset": offset, "ack": 0, "data": ""})


@pytest.mark.parametrize(
    "place", ["abc", "7.zz.1", "7.1", "7.1.1.1", "65535.1.1", "7.0.1", "7.1.0"]
)
def test_a_place_that_is_none(place):
    here = {"GW_SERVER": "127.0.0.1:9", "MSA_MODULE_ID": 1, "KEY": A_KEY, "RETRY": 1}
    with pscompy.Session(config=here) as session:
        with pytest.raises(pscompy.ConnectError, match="is no location at a gateway"):
            session.connect(f"gateway!{place}").open(TIMEOUT)
        with pytest.raises(pscompy.ConnectError, match="not within module 1"):
            session.connect("gateway!1.1f.2").open(TIMEOUT)


def test_a_node_is_lost_when_no_gateway_knows_it():
    reach = Reach()
    reach.missing(0, left=True)
    assert not reach.lost({0, 1}, steady=True, now=0.0)
    reach.missing(1)
    assert reach.doubtful({0, 1}) == {0, 1}
    assert not reach.lost({0, 1}, steady=False, now=0.0)
    assert reach.lost({0, 1}, steady=True, now=0.0)
    reach.seen(1)
    assert not reach.lost({0, 1}, steady=True, now=10.0)
    assert not reach.lost(set(), steady=True, now=20.0)
    assert reach.lost(set(), steady=True, now=20.0 + GRACE)


def test_a_node_that_no_gateway_has_seen_yet_may_still_come():
    """A missing node is lost only after ARRIVAL seconds, because it may still connect to a
    gateway; the time starts again for a gateway that has restarted."""
    reach = Reach()
    for gateway in (0, 1):
        reach.missing(gateway)
    assert not reach.lost({0, 1}, steady=True, now=0.0)
    assert not reach.lost({0, 1}, steady=True, now=ARRIVAL - 1)
    assert reach.lost({0, 1}, steady=True, now=ARRIVAL)
    reach.seen(0)
    assert not reach.lost({0, 1}, steady=True, now=ARRIVAL)
    reach.missing(0)
    assert not reach.lost({0}, steady=True, now=ARRIVAL + 1)


def test_frames_take_the_shortest_way():
    """Neighbours 101 and 102 lead to module 5, over one and over two gateways."""
    told: dict[int, list[dict[str, object]]] = {}
    board = Switchboard("here", 100, lambda: None, lambda: {"bytes": 0, "streams": 0})
    members = {}
    for node, reaches in ((101, {"5": 0}), (102, {"5": 1, "6": 0}), (7, None)):
        frames = told[node] = []
        member = members[node] = Member(frames.append, "data")
        more = {"modules": {}} if reaches is not None else {}
        board.take(member, {"kind": "hello", "node": node, "module": 1, **more})
        if reaches is not None:
            board.take(member, {"kind": "modules", "modules": reaches})
    source = {"from_module": 1, "from_node": 7}
    board.take(members[7], {"kind": "tunnel", "module": 5, "node": 55, **source})
    board.take(members[7], {"kind": "tunnel", "module": 6, "node": 66, **source})
    board.take(members[7], {"kind": "tunnel", "module": 9, "node": 99, **source})
    assert [it["node"] for it in told[101] if it["kind"] == "tunnel"] == [55]
    assert [it["node"] for it in told[102] if it["kind"] == "tunnel"] == [66]
    assert told[7][-1]["kind"] == "absent"
    assert told[7][-1]["about"] == 99
    board.leave(members[101])
    board.take(members[7], {"kind": "tunnel", "module": 5, "node": 55, **source})
    assert [it["node"] for it in told[102] if it["kind"] == "tunnel"] == [66, 55]


def test_more_gateways_than_can_be():
    with pytest.raises(BadRoutes, match=str(PATHS_MAX)):
        parse_servers(" ".join(f"gw{n}:1" for n in range(PATHS_MAX + 1)))


def board_of(*neighbours: int) -> tuple[Switchboard, dict[int, Member], list[dict[str, object]]]:
    """A gateway with neighbours and one process, node 7, whose received frames are in the list."""
    board = Switchboard("here", 100, lambda: None, lambda: {"bytes": 0, "streams": 0})
    told: list[dict[str, object]] = []
    members = {7: Member(told.append, "data", "seven")}
    members |= {node: Member(lambda _: None, "data") for node in neighbours}
    for node, member in members.items():
        more = {"modules": {}, "name": f"gw{node}"} if node != 7 else {}
        board.take(member, {"kind": "hello", "node": node, "module": 1, **more})
    return board, members, told


def gone(told: list[dict[str, object]]) -> list[object]:
    return [it["about"] for it in told if it["kind"] == "gone"]


def test_nobody_takes_anothers_number() -> None:
    board, members, _ = board_of(101)
    hello = {"kind": "hello", "node": 7, "module": 1}
    for more in ({}, {"modules": {}, "name": "gw9"}):
        with pytest.raises(ValueError, match="another session"):
            board.take(Member(lambda _: None, "data", "another"), hello | more)
    assert board.nodes[7] is members[7]
    again = Member(lambda _: None, "data", "seven")  # the same session on a new trunk
    board.take(again, hello)
    board.leave(members[7])
    assert board.nodes[7] is again


def test_a_gateway_tells_only_of_the_end_of_its_own_nodes() -> None:
    board, members, told = board_of(101, 102)
    source = {"from_module": 2, "from_node": 55, "module": 1, "node": 7}
    board.take(members[101], {"kind": "tunnel", **source})  # node 55 is behind neighbour 101
    for about in (7, 55):
        board.take(members[102], {"kind": "gone", "about": about})
    assert gone(told) == []
    board.take(members[101], {"kind": "gone", "about": 55})
    assert gone(told) == [55]


def test_who_asks_for_a_node_that_has_left_is_told_so() -> None:
    board, members, told = board_of()
    visitor = Member(lambda _: None, "data", "eight")
    board.take(visitor, {"kind": "hello", "node": 8, "module": 2})
    board.leave(visitor)
    find = {"kind": "find", "module": 2, "from_module": 1, "from_node": 7}
    for node, left in ((8, True), (9, False)):
        board.take(members[7], {**find, "node": node})
        assert (told[-1]["kind"], told[-1]["about"], told[-1]["left"]) == ("absent", node, left)


def test_who_asks_for_a_node_that_has_come_back_is_not_told_that_it_left() -> None:
    board, members, told = board_of(101, 102)
    tunnel = {"kind": "tunnel", "from_module": 2, "from_node": 55, "module": 1, "node": 7}
    find = {"kind": "find", "module": 2, "node": 55, "from_module": 1, "from_node": 7}
    board.take(members[101], {"kind": "gone", "about": 55})
    board.take(members[7], find)
    assert told[-1]["left"]
    board.take(members[102], tunnel)  # node 55 is behind neighbour 102 now
    board.take(members[7], find)
    assert (told[-1]["kind"], told[-1]["left"]) == ("absent", False)


@pytest.mark.parametrize("depth", [300, 30_000])
def test_a_frame_that_is_nested_too_deeply(depth: int) -> None:
    with pytest.raises(BadFrame, match="nested"):
        parse(b'{"kind":"x","y":' + b"[" * depth + b"]" * depth + b"}", "somebody")


def test_a_tunnel_whose_bytes_are_not_read_is_closed():
    async def work() -> None:
        sockets = []
        tunnels = Tunnels({"from_module": 1, "from_node": 7}, {1: sockets.append}, lambda *_: None)
        frame = {"name": "t", "from_node": 9, "from_module": 2, "listener": 1, "ack": 0}
        data = bytes(PIECE).hex()
        with pytest.raises(ValueError, match="not read here"):
            for piece in range(2 * INBOX_MAX // PIECE):
                tunnels.take({**frame, "offset": piece * PIECE, "data": data})
        assert not tunnels.nodes
        (sock,) = sockets
        with sock:
            sock.setblocking(True)
            while sock.recv(1 << 20):
                pass

    asyncio.run(work())


def test_a_meeting_forgets_the_modules_of_a_crashed_gateway():
    told = []
    board = Switchboard("g", 1, lambda: None, dict)
    neighbours = [Member(lambda _: None, "data") for _ in range(2)]
    for node, neighbour in enumerate(neighbours, 101):
        hello = {"kind": "hello", "node": node, "module": -1, "name": f"{node}", "modules": {}}
        board.take(neighbour, hello)
    piece = {"number": 0, "piece": 0, "count": 1, "text": "t"}
    join = {"kind": "join", "name": "m", "modules": 2, **piece}
    for neighbour in neighbours:
        board.take(neighbour, {**join, "module": 1, "member": "one"})
    board.leave(neighbours[0])  # the other neighbour still knows module 1
    board.take(Member(told.append, "data"), {**join, "module": 1, "member": "another"})
    assert [it["kind"] for it in told] == ["refused"]
    board.leave(neighbours[1])
    board.take(Member(told.append, "data"), {**join, "module": 1, "member": "another"})
    assert [it["kind"] for it in told] == ["refused", "here", "here"]
