"""Policy plugin02: the pair (i, i) uses gateway i modulo numGw, and the pairs (i, i + 1), (i, i +
2), ... use the gateways after it in turn."""

from __future__ import annotations


def routeConnectionS(sizeA: int, sizeB: int, numGw: int, i: int, j: int) -> tuple[str | None, int]:
    return None, (i + ((j - i) % sizeB) % numGw) % numGw
