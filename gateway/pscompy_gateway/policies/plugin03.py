"""Policy plugin03: all pairs (i, j), in order, use the gateways in turn."""

from __future__ import annotations


def routeConnectionS(sizeA: int, sizeB: int, numGw: int, i: int, j: int) -> tuple[str | None, int]:
    return None, (i * sizeB + j) % numGw
