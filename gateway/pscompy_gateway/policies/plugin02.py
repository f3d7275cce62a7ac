"""Policy plugin02: the pair (i, i) uses gateway i modulo numGw, and each next pair (i, j) the next
gateway."""

from __future__ import annotations


def routeConnectionS(sizeA: int, sizeB: int, numGw: int, i: int, j: int) -> tuple[str | None, int]:
    return None, (i + ((j - i) % sizeB) % numGw) % numGw
