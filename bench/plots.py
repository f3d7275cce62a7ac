"""Plots the figures of groups over the sizes of their cells."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.results import Document
from bench.rows import TRIALS
from pscompy.cli import plot
from pscompy.errors import Unsupported

_LIMITS = ("limit",)
_SHARES = ("%", TRIALS)  # beginnings of the units of shares


def draw(path: Path, title: str, documents: Sequence[Document]) -> None:
    """Write a picture with the plots of these groups, if they have cells with sizes and matplotlib
    is installed."""
    panels = [panel for made in documents for panel in _panels(made)]
    if not panels:
        return
    try:
        plot.check()
    except Unsupported as error:
        print(f"bench: no plots: {error}", file=sys.stderr)
        return
    made = documents[-1]
    plot.draw(path, f"{title}\n{made['machine']}, {made['date'][:10]}", panels)


def _panels(made: Document) -> list[plot.Panel]:
    cells = [cell for cell in made["cells"] if cell["size"] is not None]
    names = dict.fromkeys(cell["over"] for cell in cells)
    return [
        _panel(made["libraries"], name, [cell for cell in cells if cell["over"] == name])
        for name in names
    ]


def _panel(libraries: list[str], over: str, cells: list[Document]) -> plot.Panel:
    lines: dict[str, dict[int, float]] = {name: {} for name in libraries}
    for cell in cells:
        for name, value in cell["medians"].items():
            lines[name][cell["size"]] = value
    unit = cells[0]["unit"]
    return plot.Panel(unit, lines, _LIMITS, over, share=unit.startswith(_SHARES))
