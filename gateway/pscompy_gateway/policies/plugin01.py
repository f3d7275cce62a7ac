"""Policy plugin01: pairs (i, j) on the same diagonal i + j use the same gateway."""

from __future__ import annotations


def routeConnectionS(sizeA: int, sizeB: int, numGw: int, i: int, j: int) -> tuple[str | None, int]:
    return None, (i + j) % numGw
