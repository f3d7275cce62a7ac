"""What gateways tell of themselves, for people: a table, and a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pscompy import PscomError

Status = dict[str, Any]


def table(status: Status) -> Iterator[str]:
    """Lines."""
    counters = status["counters"]
    fabrics = ", ".join("+".join(it["transports"]) for it in status["fabrics"])
    yield f"gateway {status['name']}, pid {status['pid']}, for {status['seconds']:.0f} s"
    yield from (f"  {it['address']}" for it in status["fabrics"])
    yield f"fabrics: {fabrics}; modules: {', '.join(map(str, status['modules'])) or 'none'}"
    yield (
        f"{counters['packets']} packets, {counters['bytes']} bytes; {counters['held']} held now, "
        f"{counters['held_most']} at most; {counters['dropped']} dropped, "
        f"{counters['unreachable']} for nobody"
    )
    if status["peers"]:
        yield f"{'module':>8} {'node':>17} {'in':>14} {'out':>14} {'held':>10} {'dropped':>8}"
    for it in status["peers"]:
        where = "gateway" if it["node"] in _gateways(status) else it["module"]
        numbers = f"{it['in_bytes']:14} {it['out_bytes']:14} {it['held']:10} {it['dropped']:8}"
        yield f"{where:>8} {it['node']:17x} {numbers}"


def _gateways(status: Status) -> set[int]:
    return {it["node"] for it in status["members"] if it["gateway"]}


def streams(status: Status) -> dict[int, dict[int, int]]:
    """Bytes through a gateway: module -> node -> how many."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for it in status["peers"]:
        if it["node"] and it["node"] not in _gateways(status):
            found[it["module"]][it["node"]] = it["in_bytes"] + it["out_bytes"]
    return found


def picture(statuses: Sequence[Status], path: Path) -> None:
    """Modules with their processes left and right, gateways between them; the wider a line, the
    more has gone along it. `PscomError`: there is no matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PscomError("a picture needs matplotlib: pip install 'pscompy[plot]'") from None
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    places = _places(statuses)
    most = max(
        (n for it in statuses for of in streams(it).values() for n in of.values()), default=1
    )
    for number, status in enumerate(statuses):
        middle = (0.5, _height(number, len(statuses)))
        axes.text(*middle, status["name"], ha="center", va="center", bbox={"fc": "gold"}, zorder=3)
        for of_module in streams(status).values():
            for node, count in of_module.items():
                x, y = zip(places[node], middle, strict=True)
                axes.plot(x, y, color="steelblue", lw=0.5 + 5 * count / max(most, 1), alpha=0.7)
    _draw_processes(axes, statuses, places)
    figure.savefig(path)


def _height(number: int, count: int) -> float:
    return 1 - (number + 1) / (count + 1)


def _places(statuses: Sequence[Status]) -> dict[int, tuple[float, float]]:
    """Where each process stands: modules by turns left and right."""
    members: dict[int, set[int]] = defaultdict(set)
    for status in statuses:
        for module, nodes in streams(status).items():
            members[module] |= set(nodes)
    sides: dict[int, list[int]] = {0: [], 1: []}
    for number, module in enumerate(sorted(members)):
        sides[number % 2] += sorted(members[module])
    return {
        node: (0.05 + 0.9 * side, _height(number, len(nodes)))
        for side, nodes in sides.items()
        for number, node in enumerate(nodes)
    }


def _draw_processes(
    axes: Any, statuses: Sequence[Status], places: dict[int, tuple[float, float]]
) -> None:
    modules = {node: m for it in statuses for m, nodes in streams(it).items() for node in nodes}
    for node, (x, y) in places.items():
        text = f"module {modules[node]}\n{node % 0x10000:04x}"
        axes.text(x, y, text, ha="center", va="center", fontsize=7, bbox={"fc": "white"}, zorder=3)
