"""Draws the results of heat.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")


def draw(field: np.ndarray, links: Mapping[tuple[int, int], str], folder: Path) -> list[Path]:
    """Write the pictures into `folder`; returns their paths."""
    try:
        import matplotlib
    except ImportError:
        print("no pictures without matplotlib: pip install matplotlib", file=sys.stderr)
        return []
    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "field.png", folder / "connections.png"]
    draw_field(field, paths[0])
    draw_connections(links, paths[1])
    return paths


def draw_field(field: np.ndarray, path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 6), layout="constrained")
    image = axes.imshow(field, cmap="inferno", vmin=0)
    figure.colorbar(image, label="temperature / degrees")
    axes.set(title="Heat on a plate", xlabel="column", ylabel="row")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw_connections(links: Mapping[tuple[int, int], str], path: Path) -> None:
    """The ranks on a circle, with a line for every connection.

    `links` maps pairs of ranks to the transport between them.
    """
    from matplotlib import pyplot

    ranks = 1 + max((max(pair) for pair in links), default=0)
    angles = np.pi / 2 - 2 * np.pi * np.arange(ranks) / ranks
    x, y = np.cos(angles), np.sin(angles)
    colours = dict(zip(sorted(set(links.values())), COLOURS * len(links), strict=False))
    figure, axes = pyplot.subplots(figsize=(6, 6), layout="constrained")
    for (one, other), transport in sorted(links.items()):
        ends = [one, other]
        axes.plot(x[ends], y[ends], color=colours[transport], linewidth=2, zorder=1)
    axes.scatter(x, y, s=500, color="white", edgecolor="black", zorder=2)
    for rank in range(ranks):
        axes.text(x[rank], y[rank], str(rank), ha="center", va="center", zorder=3)
    for transport, colour in colours.items():
        axes.plot([], [], color=colour, linewidth=2, label=transport)
    if colours:
        axes.legend(title="transport")
    pairs = len({frozenset(pair) for pair in links})
    axes.set(title=f"{ranks} ranks, {pairs} connections", aspect="equal")
    axes.set_axis_off()
    axes.margins(0.15)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
