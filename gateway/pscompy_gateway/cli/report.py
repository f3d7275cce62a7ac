"""Formats the status of gateways: a table to print, and the numbers that topology_plot draws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
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
        yield f"{'module':>8} {'node':>17} {'in':>14} {'out':>14} {'held':>10} {'dropped':>8}"
    for it in status["peers"]:
        where = "gateway" if it["node"] in _gateways(status) else it["module"]
        numbers = f"{it['in_bytes']:14} {it['out_bytes']:14} {it['held']:10} {it['dropped']:8}"
        yield f"{where:>8} {it['node']:17x} {numbers}"
    if status["streams"]:
        yield f"{'from':>24} {'to':>24} {'packets':>10} {'bytes':>14}"
    for it in sorted(status["streams"], key=lambda it: -it["bytes"]):
        ends = f"{_end(it['from_node'], status):>24} {_end(it['to_node'], status):>24}"
        yield f"{ends} {it['packets']:10} {it['bytes']:14}"


def _end(node: int, status: Status) -> str:
    """Return the name of a node, MODULE:NODE. For a node behind another gateway the module is not
    known here, so `?` stands for it."""
    known = {it["node"]: it["module"] for it in status["peers"]}
    return f"{known.get(node, '?')}:{node:x}"


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
