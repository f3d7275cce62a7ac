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
    lines: dict[str, dict[int, float]] = {name: {} for name in made["libraries"]}
    cells = [cell for cell in made["cells"] if cell["size"] is not None]
    for cell in cells:
        for name, value in cell["medians"].items():
            lines[name][cell["size"]] = value
    if not cells:
        return
    try:
        plot.check()
    except Unsupported as error:
        print(f"bench: no plots: {error}", file=sys.stderr)
        return
    panel = plot.Panel(cells[0]["unit"], lines, _LIMITS)
    title = f"{made['title']}\n{made['machine']}, {made['date'][:10]}"
    plot.draw(folder / f"{made['group']}.png", title, [panel])
