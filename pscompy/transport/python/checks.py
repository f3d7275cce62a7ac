"""Checks of what a transport written in Python says about itself; each flaw is named in words."""

from __future__ import annotations

from math import inf

from pscompy.transport.python.base import PythonTransport

ADDRESS_MAX = 1000  # bytes; with an endpoint's number they fit into PSC_ADDRESS_MAX
FRAME_MIN = 2048
UINT32_MAX = (1 << 32) - 1  # a stream has the length of a frame in four bytes


def check_opened(transport: PythonTransport, address: object) -> None:
    """Raise `ValueError` if `open` has returned no address, or an attribute has no valid value."""
    if problem := _flaw_of_address(address) or _flaw_of_attributes(transport):
        raise ValueError(problem)


def _flaw_of_address(address: object) -> str | None:
    if not isinstance(address, bytes):
        return f"open() returned {type(address).__name__}, not bytes"
    if len(address) > ADDRESS_MAX:
        return (
            f"open() returned an address of {len(address)} bytes, at most {ADDRESS_MAX} are allowed"
        )
    return None


def _flaw_of_attributes(transport: PythonTransport) -> str | None:
    for name, unit in (("latency", "seconds"), ("bandwidth", "bytes per second")):
        value = getattr(transport, name)
        if not isinstance(value, int | float) or not 0 < value < inf:
            return f"{name} is {value!r}, not a number of {unit} above 0"
    for name, least in (("max_frame", FRAME_MIN), ("queue", 1)):
        if problem := _flaw_of_whole(getattr(transport, name), least):
            return f"{name} is {problem}"
    for name in ("stream", "node_only"):
        if (value := getattr(transport, name)) not in (True, False):
            return f"{name} is {value!r}, not True or False"
    return None


def _flaw_of_whole(value: object, least: int) -> str | None:
    if not isinstance(value, int):
        return f"{value!r}, not a whole number"
    if value < least:
        return f"{value}, at least {least} is needed"
    if value > UINT32_MAX:
        return f"{value}, at most {UINT32_MAX} is allowed"
    return None
