"""Sizes in bytes as short texts for people."""

from __future__ import annotations

_SHIFTS = {30: "G", 20: "M", 10: "k"}


def short(size: int) -> str:
    """Return a size as a short text, such as 64k for 65536."""
    number, letter = _scaled(size)
    return f"{number}{letter}"


def with_unit(size: int) -> str:
    """Return a size with its unit, such as 64 KiB for 65536, or 8 B for 8."""
    number, letter = _scaled(size)
    return f"{number} {letter.upper()}iB" if letter else f"{number} B"


def _scaled(size: int) -> tuple[int, str]:
    for shift, letter in _SHIFTS.items():
        if size >= 1 << shift and size % (1 << shift) == 0:
            return size >> shift, letter
    return size, ""
