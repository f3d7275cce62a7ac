"""Which uUAR of a context a QP is assigned to, and what QPs share by it.

Source: Zambre, Chandramowlishwaran, Balaji, section V-B, figure 4(b) and appendix B. uUARs are
numbered through: 2k and 2k + 1 are on UAR k. The static ones, which a context begins with, come
first; those of thread domains (TDs) follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import count, cycle

UUARS_PER_UAR = 2  # for data; the device keeps the other two of a page to itself


class Sharing(IntEnum):
    """The levels of figure 4(b): what threads share on their way to the device."""

    INDEPENDENT = 1
    UAR = 2
    UUAR = 3
    QP = 4


@dataclass(frozen=True)
class Policy:
    """How mlx5 assigns QPs to the uUARs of one context.

    The fields are what MLX5_TOTAL_UUARS and MLX5_NUM_LOW_LAT_UUARS set. rdma-core also rounds an
    odd total up, and raises the number of low-latency uUARs to the total less 12 if it is lower;
    the paper mentions neither, and the model does neither.
    """

    total_uuars: int = 16
    low_latency_uuars: int = 4

    def __post_init__(self) -> None:
        if self.total_uuars < UUARS_PER_UAR or self.total_uuars % UUARS_PER_UAR:
            raise ValueError(f"{self.total_uuars} uUARs: a UAR has two, so the total is even")
        if not 0 <= self.low_latency_uuars < self.total_uuars:
            raise ValueError(
                f"{self.low_latency_uuars} low-latency uUARs: there can be 0 to"
                f" {self.total_uuars - 1}, all but one of {self.total_uuars}"
            )

    @property
    def uars(self) -> int:
        """UARs that a context begins with."""
        return self.total_uuars // UUARS_PER_UAR

    def kind(self, uuar: int) -> str:
        """Latency of a uUAR: "high", "medium" or "low"; "dynamic" if a TD brought it."""
        if uuar >= self.total_uuars:
            return "dynamic"
        if uuar >= self.total_uuars - self.low_latency_uuars:
            return "low"
        return "medium" if uuar else "high"

    def static(self) -> Iterator[int]:
        """The uUAR of one QP after the other, without TDs.

        Each low-latency uUAR takes one QP; the medium ones, which need a lock, take the rest in
        turns. Only if there are no medium ones the rest goes to uUAR 0, which has no BlueFlame.
        """
        first_low = self.total_uuars - self.low_latency_uuars
        yield from range(first_low, self.total_uuars)
        yield from cycle(range(1, first_low) or (0,))

    def dynamic(self, sharing: Sharing) -> Iterator[int]:
        """The uUAR of one TD after the other.

        INDEPENDENT: each TD takes a new UAR and leaves the second uUAR of it unused. UAR, which
        mlx5 does by itself: every even TD takes a new UAR, the next TD the second uUAR of it.
        """
        return count(self.total_uuars, UUARS_PER_UAR if sharing == Sharing.INDEPENDENT else 1)


def levels(uuars: Sequence[int]) -> list[Sharing]:
    """What each QP of one context shares with the others, from the uUAR of each."""
    on_uuar = Counter(uuars)
    on_uar = Counter(uuar // UUARS_PER_UAR for uuar in uuars)

    def level(uuar: int) -> Sharing:
        if on_uuar[uuar] > 1:
            return Sharing.UUAR
        return Sharing.UAR if on_uar[uuar // UUARS_PER_UAR] > 1 else Sharing.INDEPENDENT

    return [level(uuar) for uuar in uuars]
