"""Cells of a table, and groups of cells that the same launches measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

K, M = 1 << 10, 1 << 20
OWN = "pscompy"
SIZES = "bytes in a message"
TRIALS = "of 15"  # the unit of a number of successes
MPI = ("mpich", "openmpi")

# Name of a cell -> its figure in one launch.
Figures = dict[str, float]
Launch = Callable[[float], Figures]  # the argument is the number of seconds for each cell


@dataclass(frozen=True)
class Cell:
    """A figure and its limit: `bar` times the best figure of the libraries in `against`.

    Without `against`, `bar` itself is the limit; without `bar`, the figure is only reported. The
    plots draw the figure at `size`, which is a number of `over`; each `over` has a plot of its own.
    """

    name: str
    unit: str
    bar: float | None = None
    against: tuple[str, ...] = MPI
    size: int | None = None
    over: str = SIZES

    @property
    def less_is_better(self) -> bool:
        return not self.unit.endswith(("/s", TRIALS))


@dataclass(frozen=True)
class Group:
    """Cells that are measured together. Libraries that no cell is compared with are only shown."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    launches: Mapping[str, Launch]
