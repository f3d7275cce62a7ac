"""What `pscompy perf` prints: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pscompy import __version__
from pscompy.cli.sampling import ROUNDS, Sample

# Quantity of a row -> its heading, the attribute of Sample, whether less is better.
QUANTITIES = {
    "latency": ("one way, us", "one_way_us", True),
    "bandwidth": ("MB/s", "megabytes_per_second", False),
    "rate": ("messages/s", "messages_per_second", False),
}
_WIDTH = 11


@dataclass
class Report:
    """All figures: size -> quantity -> name of the pair -> sample."""

    transport: str
    window: int
    names: tuple[str, ...]
    quantities: tuple[str, ...]
    rows: dict[int, dict[str, Mapping[str, Sample]]] = field(default_factory=dict)
    validated: int = 0

    def as_text(self) -> str:
        lines = [self._head(), "", self._groups(), self._columns()]
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

    # ---- for people ----

    def _head(self) -> str:
        checked = f"; {self.validated} messages had the right contents" if self.validated else ""
        return (
            f"pscompy {__version__} over {self.transport}; {_machine()}\n"
            f"median of {ROUNDS} rounds; {self.window} messages in a window{checked}"
        )

    def _groups(self) -> str:
        width = _WIDTH * len(self.names) + 6 * (len(self.names) - 1)
        titles = (f"{QUANTITIES[name][0]:>{width}}" for name in self.quantities)
        return " " * 8 + "".join(titles)

    def _columns(self) -> str:
        if len(self.names) == 1:
            return f"{'size':>8}"
        ours, *others = (f"{name:>{_WIDTH}}" for name in self.names)
        group = ours + "".join(f"{other}{'x':>6}" for other in others)
        return f"{'size':>8}" + group * len(self.quantities)

    def _row(self, size: int) -> str:
        return f"{_short(size):>8}" + "".join(self._cells(size))

    def _cells(self, size: int) -> Iterator[str]:
        for quantity in self.quantities:
            values = self._values(size, quantity)
            yield f"{_figure(values[self.names[0]]):>{_WIDTH}}"
            for name in self.names[1:]:
                yield f"{_figure(values[name]):>{_WIDTH}}"
                yield f"{self._ratio(size, quantity, name):>6.2f}"

    # ---- figures ----

    def _values(self, size: int, quantity: str) -> dict[str, float]:
        _, attribute, _ = QUANTITIES[quantity]
        samples = self.rows[size][quantity]
        return {name: getattr(samples[name], attribute) for name in self.names}

    def _ratio(self, size: int, quantity: str, name: str) -> float:
        """How many times better than `name`; by time per message, which a size of 0 has too."""
        samples = self.rows[size][quantity]
        return samples[name].seconds / samples[self.names[0]].seconds

    def _document(self, size: int) -> dict[str, Any]:
        ours, *others = self.names
        result: dict[str, Any] = {"size": size}
        for quantity in self.quantities:
            _, attribute, _ = QUANTITIES[quantity]
            values = self._values(size, quantity)
            result[attribute] = values[ours]
            for name in others:
                result.setdefault(name, {})[attribute] = values[name]
                result[name][f"{quantity}_ratio"] = self._ratio(size, quantity, name)
        return result


def _machine() -> str:
    cores = len(os.sched_getaffinity(0))
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return f"{system}, {cores} cores, Python {platform.python_version()}"


def _short(size: int) -> str:
    """64k for 65536."""
    for unit, shift in (("G", 30), ("M", 20), ("k", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def _figure(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"
