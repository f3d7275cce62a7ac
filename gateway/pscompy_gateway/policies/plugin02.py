"""Each node begins at another gateway, and goes round from itself on."""

from __future__ import annotations


def routeConnectionS(sizeA: int, sizeB: int, numGw: int, i: int, j: int) -> tuple[str | None, int]:
    return None, (i + ((j - i) % sizeB) % numGw) % numGw
