"""Locations at gateways: what follows `gateway!` in an address."""

from __future__ import annotations

import re
from typing import NamedTuple

from pscompy_gateway.trunk import GATEWAY_MODULE

_FORM = re.compile(r"([0-9]{1,5})\.([0-9A-Fa-f]{1,16})\.([1-9][0-9]{0,9})")


class Location(NamedTuple):
    """A listener of a process, as MODULE.NODE.LISTENER with the node in hexadecimal digits."""

    module: int
    node: int
    listener: int

    def __str__(self) -> str:
        return f"{self.module}.{self.node:x}.{self.listener}"

    @classmethod
    def parse(cls, text: str) -> Location:
        """Parse a location. Raises `ValueError` if the text is not a location of a process."""
        found = _FORM.fullmatch(text)
        if found:
            location = cls(int(found[1]), int(found[2], 16), int(found[3]))
            if location.module < GATEWAY_MODULE and location.node:
                return location
        raise ValueError(f"{text!r} is no location at a gateway: expected MODULE.NODE.LISTENER")
