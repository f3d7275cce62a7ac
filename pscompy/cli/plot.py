"""Draws measured values over message sizes or other numbers, mostly on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pscompy.cli.sizes import short
from pscompy.errors import Unsupported

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES = 6.0
_COLUMNS = 2


@dataclass(frozen=True)
class Panel:
    """One plot with a line for each name. `over` labels the horizontal axis, usually the message
    size. The lines of the names in `dashed` are limits, and dashed. If `linear` is set, both axes
    are linear; if `share` is set, only the vertical axis is."""

    label: str
    lines: Mapping[str, Mapping[int, float]]
    dashed: tuple[str, ...] = ()
    over: str = "bytes in a message"
    linear: bool = False
    share: bool = False


def check() -> None:
    """Raise `Unsupported` if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise Unsupported("matplotlib is not installed: pip install matplotlib")


def draw(path: Path, title: str, panels: Sequence[Panel]) -> None:
    """Write a picture, in the format that the path's suffix names. A size of 0 is not drawn,
    unless the axes are linear."""
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    size = (_INCHES * columns, 0.75 * _INCHES * rows)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize="medium")
    for place, panel in enumerate(panels, 1):
        _draw(figure.add_subplot(rows, columns, place), panel)
    figure.savefig(path, dpi=120)


def _draw(axes: Axes, panel: Panel) -> None:
    sizes = sorted({size for line in panel.lines.values() for size in line})
    if panel.linear:
        axes.set_ylim(0, max(max(line.values()) for line in panel.lines.values()))
    else:
        sizes = [size for size in sizes if size > 0]
        axes.set_xscale("log", base=2)
        axes.set_yscale("linear" if panel.share else "log")
        axes.set_xticks(sizes, [short(size) for size in sizes], rotation=45)
        axes.minorticks_off()
    axes.set_xlabel(panel.over)
    axes.set_ylabel(panel.label)
    axes.grid(alpha=0.3)
    for name, line in panel.lines.items():
        drawn = {size: line[size] for size in sizes if size in line}
        style = "--" if name in panel.dashed else "o-"
        axes.plot(list(drawn), list(drawn.values()), style, label=name, markersize=4)
    axes.legend()
