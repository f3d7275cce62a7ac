"""Timeouts as the program gives them: any number that C takes for seconds, or None."""

from __future__ import annotations

import math

from pscompy.errors import shown


def as_float(timeout: float | None) -> float | None:
    """Return a timeout as a float. `TypeError` unless it is a number, such as a Fraction, or
    None."""
    try:
        return None if timeout is None else math.ldexp(timeout, 0)  # float() would take a text
    except TypeError:
        kind = type(timeout).__name__
        raise TypeError(f"a timeout is None or a number of seconds, not {kind}") from None


def as_seconds(timeout: float | None) -> float | None:
    """Return a timeout as a float. Raises the exceptions of a timeout of `recv`."""
    seconds = as_float(timeout)
    if seconds is None or seconds >= 0:
        return seconds
    raise ValueError(f"a timeout is None or at least 0 seconds, not {shown(timeout)}")
