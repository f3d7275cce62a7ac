"""The assignment of QPs to the uUARs of a context, and the sharing that results.

Source: Zambre, Chandramowlishwaran, Balaji, section V-B, figure 4(b) and appendix B. uUARs 2k and
2k + 1 are on UAR k. The static uUARs, with which a context begins, have the lowest numbers; the
uUARs of thread domains (TDs) follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import count, cycle

UUARS_PER_UAR = 2  # uUARs for data in each UAR; the device reserves two more for itself


class Sharing(IntEnum):
    """The levels of figure 4(b): the resource that threads share when they access the device."""

    INDEPENDENT = 1
    UAR = 2
    UUAR = 3
    QP = 4


@dataclass(frozen=True)
class Policy:
    """How mlx5 assigns QPs to the uUARs of one context.

    The fields are the values of MLX5_TOTAL_UUARS and MLX5_NUM_LOW_LAT_UUARS. rdma-core also rounds
    an odd total up, and raises the number of low-latency uUARs to the total less 12 if it is lower;
    the paper mentions neither, and the model does neither. Raises `ValueError` if the total is not
    a positive even number, or if not at least one uUAR remains besides the low-latency ones.
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
        """The number of UARs with which a context begins."""
        return self.total_uuars // UUARS_PER_UAR

    def kind(self, uuar: int) -> str:
        """The latency of a uUAR: "high", "medium" or "low"; "dynamic" if a TD has added it."""
        if uuar >= self.total_uuars:
            return "dynamic"
        if uuar >= self.total_uuars - self.low_latency_uuars:
            return "low"
        return "medium" if uuar else "high"

    def static(self) -> Iterator[int]:
        """Yield without end the uUARs of QPs without TDs, in the order in which the QPs are
        created.

        Each low-latency uUAR gets one QP; the medium uUARs, which need a lock, get the others in
        turn. If there are no medium uUARs, the others get uUAR 0, which has no BlueFlame.
        """
        first_low = self.total_uuars - self.low_latency_uuars
        yield from range(first_low, self.total_uuars)
        yield from cycle(range(1, first_low) or (0,))

    def dynamic(self, sharing: Sharing) -> Iterator[int]:
        """Return an endless iterator over the uUARs of TDs, in the order in which the TDs are
        created.

        With INDEPENDENT each TD gets a new UAR, whose second uUAR stays unused. With UAR, the
        default of mlx5, every even TD gets a new UAR, and the next TD gets its second uUAR.
        """
        return count(self.total_uuars, UUARS_PER_UAR if sharing == Sharing.INDEPENDENT else 1)


def levels(uuars: Sequence[int]) -> list[Sharing]:
    """Return the level of sharing of each QP of one context, given the uUAR of each QP."""
    on_uuar = Counter(uuars)
    on_uar = Counter(uuar // UUARS_PER_UAR for uuar in uuars)

    def level(uuar: int) -> Sharing:
        if on_uuar[uuar] > 1:
            return Sharing.UUAR
        return Sharing.UAR if on_uar[uuar // UUARS_PER_UAR] > 1 else Sharing.INDEPENDENT

    return [level(uuar) for uuar in uuars]
