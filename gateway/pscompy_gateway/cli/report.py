"""Formats the status of gateways: a table to print, and the numbers that topology_plot draws."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

Status = dict[str, Any]


def table(status: Status) -> Iterator[str]:
    """Yield the lines of a table of one gateway's status."""
    counters = status["counters"]
    fabrics = ", ".join("+".join(it["transports"]) for it in status["fabrics"])
    yield f"gateway {status['name']}, pid {status['pid']}, for {status['seconds']:.0f} s"
    yield from (f"  {it['address']}" for it in status["fabrics"])
    yield f"fabrics: {fabrics}; modules: {', '.join(map(str, status['modules'])) or 'none'}"
    yield (
        f"{counters['packets']} packets, {counters['bytes']} bytes; {counters['held']} held now, "
        f"{counters['held_most']} at most; {counters['dropped']} dropped, "
        f"{counters['unreachable']} for unknown nodes"
    )
    if status["peers"]:
        numbers = f"{'in':>14} {'out':>14} {'held':>10} {'dropped':>8}"
        yield f"{'module':>8} {'rank':>7} {'node':>17} {numbers}"
    for it in status["peers"]:
        where = "gateway" if it["node"] in _gateways(status) else it["module"]
        rank = "-" if it.get("rank") is None else it["rank"]
        numbers = f"{it['in_bytes']:14} {it['out_bytes']:14} {it['held']:10} {it['dropped']:8}"
        yield f"{where:>8} {rank:>7} {it['node']:17x} {numbers}"
    if status["streams"]:
        yield f"{'from':>24} {'to':>24} {'packets':>10} {'bytes':>14}"
    names = rank_names([status])
    for it in sorted(status["streams"], key=lambda it: -it["bytes"]):
        ends = [_end(it[side], status, names) for side in ("from_node", "to_node")]
        yield f"{ends[0]:>24} {ends[1]:>24} {it['packets']:10} {it['bytes']:14}"


def _end(node: int, status: Status, names: dict[int, str]) -> str:
    """Return the name of a node, MODULE:NODE if it is no rank. For a node behind another gateway
    the module is not known here, so `?` stands for it."""
    known = {it["node"]: it["module"] for it in status["peers"]}
    return names.get(node) or f"{known.get(node, '?')}:{node:x}"


def rank_names(statuses: Sequence[Status]) -> dict[int, str]:
    """Return a name for each node that is a rank of a World. Nodes with the same rank, of several
    Worlds or endpoints, are named by their numbers, too. An older gateway reports no ranks."""
    peers = (it for status in statuses for it in status["peers"])
    ranks = {it["node"]: it["rank"] for it in peers if it.get("rank") is not None}
    count = Counter(ranks.values())
    return {
        node: f"rank {rank}" if count[rank] == 1 else f"rank {rank} ({short(node)})"
        for node, rank in ranks.items()
    }


def short(node: int) -> str:
    """Return the first digits of a node's number, which suffice for people."""
    return f"{node >> 48:04x}"


def _gateways(status: Status) -> set[int]:
    return {it["node"] for it in status["members"] if it["gateway"]}


def streams(status: Status) -> dict[int, dict[int, int]]:
    """Return the bytes through a gateway, both directions together: module -> node -> bytes."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for it in status["peers"]:
        if it["node"] and it["node"] not in _gateways(status):
            found[it["module"]][it["node"]] = it["in_bytes"] + it["out_bytes"]
    return found


Pair = tuple[int, int]


def pairs(status: Status) -> dict[Pair, int]:
    """Return the bytes through a gateway between two nodes, both directions together: (lower node
    number, higher node number) -> bytes."""
    found: dict[Pair, int] = defaultdict(int)
    for it in status["streams"]:
        ends = sorted((it["from_node"], it["to_node"]))
        found[ends[0], ends[1]] += it["bytes"]
    return found
