"""The report of `pscompy perf`: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from pscompy import __version__
from pscompy.cli.plot import Panel, draw
from pscompy.cli.sampling import ROUNDS, Sample
from pscompy.cli.sizes import short


class Quantity(NamedTuple):
    """One quantity that `pscompy perf` measures: a column of the report's table."""

    heading: str
    key: str  # the name in JSON
    figure: Callable[[Sample], float]


QUANTITIES = {
    "latency": Quantity("one way, us", "one_way_us", attrgetter("one_way_us")),
    "bandwidth": Quantity("MB/s", "megabytes_per_second", attrgetter("megabytes_per_second")),
    "rate": Quantity("messages/s", "messages_per_second", attrgetter("messages_per_second")),
    "bidirectional": Quantity(
        "MB/s both ways", "both_ways_megabytes_per_second", attrgetter("megabytes_per_second")
    ),
}
_WIDTH = 11


@dataclass
class Report:
    """All measured values: `rows` maps size -> quantity -> name of the pair of processes ->
    sample."""

    transport: str
    window: int
    names: tuple[str, ...]
    quantities: tuple[str, ...]
    rows: dict[int, dict[str, Mapping[str, Sample]]] = field(default_factory=dict)
    validated: int = 0

    def as_text(self) -> str:
        lines = [self._head(), "", *self._headings()]
        lines += [self._row(size) for size in self.rows]
        if len(self.names) > 1:
            lines += ["", "x: how many times better pscompy is; above 1 it is the better one"]
        return "\n".join(lines)

    def as_json(self) -> str:
        document = {
            "version": __version__,
            "transport": self.transport,
            "machine": _machine(),
            "rounds": ROUNDS,
            "window": self.window,
            "validated": self.validated,
            "results": [self._document(size) for size in self.rows],
        }
        return json.dumps(document, indent=2)

    def plot(self, path: Path) -> None:
        """Draw a plot of each quantity, side by side."""
        draw(path, self._head(), [self._panel(quantity) for quantity in self.quantities])

    def _panel(self, quantity: str) -> Panel:
        lines: dict[str, dict[int, float]] = {name: {} for name in self.names}
        for size in self.rows:
            for name, value in self._values(size, quantity).items():
                lines[name][size] = value
        return Panel(QUANTITIES[quantity].heading, lines)

    # ---- for people ----

    def _head(self) -> str:
        checked = f"; {self.validated} messages had the right contents" if self.validated else ""
        return (
            f"pscompy {__version__} over {self.transport}; {_machine()}\n"
            f"median of {ROUNDS} rounds; {self.window} messages in a window{checked}"
        )

    def _headings(self) -> list[str]:
        titles = (f"{QUANTITIES[name].heading:>{self._width(name)}}" for name in self.quantities)
        if len(self.names) == 1:
            return [f"{'size':>8}" + "".join(titles)]
        ours, *others = (f"{name:>{_WIDTH}}" for name in self.names)
        group = ours + "".join(f"{other}{'x':>6}" for other in others)
        return [" " * 8 + "".join(titles), f"{'size':>8}" + group * len(self.quantities)]

    def _width(self, quantity: str) -> int:
        """Return the width in characters of all columns of a quantity together."""
        if len(self.names) == 1:
            return max(_WIDTH, len(QUANTITIES[quantity].heading) + 2)
        return _WIDTH * len(self.names) + 6 * (len(self.names) - 1)

    def _row(self, size: int) -> str:
        return f"{short(size):>8}" + "".join(self._cells(size))

    def _cells(self, size: int) -> Iterator[str]:
        for quantity in self.quantities:
            values = self._values(size, quantity)
            width = self._width(quantity) if len(self.names) == 1 else _WIDTH
            yield f"{_figure(values[self.names[0]]):>{width}}"
            for name in self.names[1:]:
                if name in values:
                    yield f"{_figure(values[name]):>{_WIDTH}}"
                    yield f"{self._ratio(size, quantity, name):>6.2f}"
                else:
                    yield f"{'-':>{_WIDTH}}{'-':>6}"

    # ---- figures ----

    def _values(self, size: int, quantity: str) -> dict[str, float]:
        """Return the measured values for one size and quantity, by the name of the pair of
        processes; pairs that do not support the test are missing."""
        samples, figure = self.rows[size][quantity], QUANTITIES[quantity].figure
        return {name: figure(samples[name]) for name in self.names if name in samples}

    def _ratio(self, size: int, quantity: str, name: str) -> float:
        """Return how many times better than the pair `name` the first pair of processes is.
        Computed from the time per message, which, unlike a bandwidth, is not 0 for a size of 0."""
        samples = self.rows[size][quantity]
        return samples[name].seconds / samples[self.names[0]].seconds

    def _document(self, size: int) -> dict[str, Any]:
        result: dict[str, Any] = {"size": size}
        for quantity in self.quantities:
            key = QUANTITIES[quantity].key
            for name, value in self._values(size, quantity).items():
                if name == self.names[0]:
                    result[key] = value
                else:
                    other = result.setdefault(name, {})
                    other[key] = value
                    other[f"{quantity}_ratio"] = self._ratio(size, quantity, name)
        return result


def _machine() -> str:
    cores = len(os.sched_getaffinity(0))
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return f"{system}, {cores} cores, Python {platform.python_version()}"


def _figure(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"
