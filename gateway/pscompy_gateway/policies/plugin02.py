"""Policy plugin02: node i uses gateway i (modulo numGw) for j = i, and the next for each next j."""

from __future__ import annotations


def routeConnectionS(sizeA: int, sizeB: int, numGw: int, i: int, j: int) -> tuple[str | None, int]:
    return None, (i + ((j - i) % sizeB) % numGw) % numGw
