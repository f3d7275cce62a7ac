"""Table I and figures 3, 12 and 14b of the paper, redrawn; needs matplotlib.

Source: Zambre, Chandramowlishwaran, Balaji. All figures show counts of this model, except the rates
of figure 12, which the paper measured. The rates of figures 3 and 14a are missing, because the
paper gives them only as curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pscompy.cli.endpoint_model.model import CATEGORIES, KIB, NAIVE, TABLE_I, Usage, hybrids, usage
from pscompy.cli.endpoint_model.paper import MEASURED_RATE
from pscompy.cli.endpoint_model.policy import Policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RESOURCES = {"QPs": "qp", "CQs": "cq", "UARs": "uar", "uUARs": "uuar"}
_NAMES = [category.name for category in CATEGORIES]
_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2")


def draw(path: Path, threads: int, policy: Policy) -> None:
    """Draw table I and the figures (see the top of this file) into the file `path`, in the format
    that its suffix names."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 13), layout="constrained")
    figure.suptitle("Scalable endpoints: what threads take of a mlx5 device")
    rows_of_figures = figure.subfigures(3, 1, squeeze=False, height_ratios=(3, 4, 4))
    top, middle, bottom = rows_of_figures[:, 0]
    sizes, scaling = top.subplots(1, 2)
    _draw_table(sizes)
    _draw_scaling(scaling, threads, policy)
    rates, used = middle.subplots(1, 2, width_ratios=(2, 5))
    _draw_rates(rates)
    _draw_categories(used, threads, policy)
    bottom.suptitle(
        f"Figure 14b: stencil, two QPs per thread, as ranks.threads of each (threads: {threads})"
    )
    shapes = hybrids(threads)
    rows = {
        f"{ranks}.{each}": [usage(it, threads, ranks, 2, policy) for it in CATEGORIES]
        for ranks, each in shapes
    }
    panels = bottom.subplots(1, len(_RESOURCES))
    for axes, resource in zip(panels, _RESOURCES, strict=True):
        _draw_hybrids(axes, resource, rows)
    bottom.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=100)


def _draw_table(axes: Axes) -> None:
    axes.set_title("Table I: bytes that an object takes")
    axes.axis("off")
    sizes = {**TABLE_I, "total": sum(TABLE_I.values())}
    texts = [f"{size // KIB}K" if size >= KIB else str(size) for size in sizes.values()]
    table = axes.table([texts], colLabels=list(sizes), loc="center", cellLoc="center")
    table.scale(1, 2)


def _draw_scaling(axes: Axes, threads: int, policy: Policy) -> None:
    axes.set_title("Figure 3, right: a context with a TD of its own for each thread")
    ticks = sorted({threads, *(1 << k for k in range(threads.bit_length()))})
    rows = [usage(NAIVE, count, policy=policy) for count in ticks]
    for (name, field), style in zip(_RESOURCES.items(), ("o-", "x--", "s-", "D-"), strict=True):
        counts = [getattr(row, field) for row in rows]
        axes.plot(ticks, counts, style, label=name)
        if name != "CQs":  # there are as many CQs as QPs, so one label is enough
            text, point = str(counts[-1]), (ticks[-1], counts[-1])
            axes.annotate(text, point, (8, 0), textcoords="offset points", va="center")
    axes.margins(x=0.1, y=0.15)
    _set_logarithmic(axes)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("threads")
    axes.legend()


def _draw_rates(axes: Axes) -> None:
    axes.set_title("Figure 12, left: rate in % of MPI everywhere,\nmeasured by the paper's authors")
    rates = [MEASURED_RATE[name] for name in _NAMES]
    bars = axes.barh(_NAMES, rates, color=_COLOURS)
    axes.bar_label(bars, [f"{rate} %" for rate in rates], padding=2)
    axes.set_xlim(0, 130)
    axes.invert_yaxis()
    axes.set_xlabel("16 threads, RDMA writes")


def _draw_categories(axes: Axes, threads: int, policy: Policy) -> None:
    axes.set_title(f"Figure 12, right: resources (threads: {threads})")
    rows = [usage(category, threads, policy=policy) for category in CATEGORIES]
    series = {name: [getattr(row, field) for row in rows] for name, field in _RESOURCES.items()}
    _draw_bars(axes, series, _NAMES, None, labels=True)
    axes.legend()


def _draw_hybrids(axes: Axes, resource: str, rows: Mapping[str, Sequence[Usage]]) -> None:
    axes.set_title(resource)
    field = _RESOURCES[resource]
    series = {
        name: [getattr(usages[number], field) for usages in rows.values()]
        for number, name in enumerate(_NAMES)
    }
    _draw_bars(axes, series, list(rows), _COLOURS, labels=False)


def _draw_bars(
    axes: Axes,
    series: Mapping[str, Sequence[int]],
    groups: Sequence[str],
    colours: Sequence[str] | None,
    labels: bool,
) -> None:
    """Draw a group of bars for each name of `groups`, with one bar for each of the series."""
    width = 0.84 / len(series)
    for number, (name, counts) in enumerate(series.items()):
        places = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        colour = colours[number] if colours else None
        bars = axes.bar(places, counts, width, label=name, color=colour)
        if labels:
            axes.bar_label(bars, fontsize="small")
    axes.set_xticks(range(len(groups)), groups)
    _set_logarithmic(axes)


def _set_logarithmic(axes: Axes) -> None:
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0.7)
    axes.set_axisbelow(True)
    axes.grid(axis="y", alpha=0.3)
