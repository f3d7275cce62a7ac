"""A picture of modules, gateways, and the traffic of pairs of nodes through each gateway."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pscompy import PscomError
from pscompy_gateway.cli.report import Pair, Status, pairs, rank_names, short, streams

NAMED = 10  # number of pairs of nodes in the legend, which has those with the most bytes
WIDEST = 5.0  # width in points of the widest line

Point = tuple[float, float]


def draw(statuses: Sequence[Status], path: Path) -> None:
    """Draw a picture into `path`: modules with their processes left and right, gateways between
    them, and a line for each pair of nodes through each gateway that it uses. The width of a line
    shows its bytes.

    Raises `PscomError` if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PscomError("a picture needs matplotlib: pip install 'pscompy[plot]'") from None
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    modules = {n: m for it in statuses for m, nodes in streams(it).items() for n in nodes}
    places = places_of(modules)
    names = rank_names(statuses)
    _draw_pairs(axes, statuses, places, modules)
    for number, status in enumerate(statuses):
        where = (0.5, _height(number, len(statuses)))
        axes.text(*where, status["name"], ha="center", va="center", bbox={"fc": "gold"}, zorder=3)
    for node, (x, y) in places.items():
        text = f"module {modules[node]}\n{names.get(node) or short(node)}"
        axes.text(x, y, text, ha="center", va="center", fontsize=7, bbox={"fc": "white"}, zorder=3)
    figure.savefig(path)


def _height(number: int, count: int) -> float:
    return 1 - (number + 1) / (count + 1)


def places_of(modules: Mapping[int, int]) -> dict[int, Point]:
    """Return the position (x, y) of each node, from 0 to 1; modules alternate between left and
    right."""
    sides: dict[int, list[int]] = {0: [], 1: []}
    for number, module in enumerate(sorted(set(modules.values()))):
        sides[number % 2] += sorted(node for node, it in modules.items() if it == module)
    return {
        node: (0.05 + 0.9 * side, _height(number, len(nodes)))
        for side, nodes in sides.items()
        for number, node in enumerate(nodes)
    }


def totals(statuses: Sequence[Status]) -> dict[Pair, int]:
    """Return the bytes between each pair of nodes through all gateways, the largest number
    first."""
    found: dict[Pair, int] = defaultdict(int)
    for status in statuses:
        for pair, count in pairs(status).items():
            found[pair] += count
    return dict(sorted(found.items(), key=lambda it: -it[1]))


def _draw_pairs(
    axes: Any,
    statuses: Sequence[Status],
    places: Mapping[int, Point],
    modules: Mapping[int, int],
) -> None:
    names = rank_names(statuses)
    most = max((n for it in statuses for n in pairs(it).values()), default=1)
    for rank, (pair, total) in enumerate(totals(statuses).items()):
        label = " - ".join(names.get(it) or f"{modules.get(it, '?')}:{short(it)}" for it in pair)
        look = {"color": f"C{rank % 10}", "alpha": 0.7}
        if rank < NAMED:
            axes.plot([], [], label=f"{label}, {total / 1e6:.3g} MB", **look)
        for number, status in enumerate(statuses):
            if (count := pairs(status).get(pair, 0)) > 0:
                middle = (0.5, _height(number, len(statuses)))
                x, y = _way(pair, middle, places, rank)
                axes.plot(x, y, lw=0.5 + WIDEST * count / max(most, 1), **look)
    if statuses and totals(statuses):
        axes.legend(fontsize=6, loc="lower center", ncols=2)


def _way(
    pair: Pair, middle: Point, places: Mapping[int, Point], rank: int
) -> tuple[list[float], list[float]]:
    """Return the x and the y values of a line from one node through a gateway to the other node.
    The line passes the gateway at a height that depends on `rank`, so that lines do not hide each
    other. A node behind another gateway is left out."""
    beside = (rank % 10 - 4.5) * 0.006
    points = [(middle[0], middle[1] + beside)]
    if pair[0] in places:
        points.insert(0, places[pair[0]])
    if pair[1] in places:
        points.append(places[pair[1]])
    return [x for x, _ in points], [y for _, y in points]
