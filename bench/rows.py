"""What a table is made of: cells, and groups of them that the same launches measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

K, M = 1 << 10, 1 << 20
OWN = "pscompy"
MPI = ("mpich", "openmpi")

# Cell -> figure, of one launch.
Figures = dict[str, float]
Launch = Callable[[float], Figures]  # gets the seconds for each cell


@dataclass(frozen=True)
class Cell:
    """A figure, and what it is held against: `bar` times the best of `against`.

    Without `against`, the bar is the figure's own, and without a bar it is only reported. `size`
    are the bytes that the plots draw it at.
    """

    name: str
    unit: str
    bar: float | None = None
    against: tuple[str, ...] = MPI
    size: int | None = None

    @property
    def less_is_better(self) -> bool:
        return not self.unit.endswith("/s")


@dataclass(frozen=True)
class Group:
    """What is measured together; libraries that nothing is held against are shown beside it."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    launches: Mapping[str, Launch]
