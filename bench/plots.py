"""Plots the figures of a group over the sizes of its cells."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.results import Document
from pscompy.cli import plot
from pscompy.errors import Unsupported

_LIMITS = ("limit",)


def draw(folder: Path, made: Document) -> None:
    """Write GROUP.png if the group has cells with sizes and matplotlib is installed."""
    cells = [cell for cell in made["cells"] if cell["size"] is not None]
    if not cells:
        return
    try:
        plot.check()
    except Unsupported as error:
        print(f"bench: no plots: {error}", file=sys.stderr)
        return
    names = dict.fromkeys(cell["over"] for cell in cells)
    panels = [
        _panel(made["libraries"], name, [cell for cell in cells if cell["over"] == name])
        for name in names
    ]
    title = f"{made['title']}\n{made['machine']}, {made['date'][:10]}"
    plot.draw(folder / f"{made['group']}.png", title, panels)


def _panel(libraries: list[str], over: str, cells: list[Document]) -> plot.Panel:
    lines: dict[str, dict[int, float]] = {name: {} for name in libraries}
    for cell in cells:
        for name, value in cell["medians"].items():
            lines[name][cell["size"]] = value
    return plot.Panel(cells[0]["unit"], lines, _LIMITS, over)
