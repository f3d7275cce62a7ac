"""Places at gateways: what follows `gateway!` in an address."""

from __future__ import annotations

import re
from typing import NamedTuple

from pscompy_gateway.trunk import GATEWAY_MODULE

_FORM = re.compile(r"([0-9]{1,5})\.([0-9A-Fa-f]{1,16})\.([1-9][0-9]{0,9})")


class Place(NamedTuple):
    """A listener of a process, as MODULE.NODE.LISTENER with the node in hexadecimal digits."""

    module: int
    node: int
    listener: int

    def __str__(self) -> str:
        return f"{self.module}.{self.node:x}.{self.listener}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse a place. Raises `ValueError` if the text is not a place of a process."""
        found = _FORM.fullmatch(text)
        if found:
            place = cls(int(found[1]), int(found[2], 16), int(found[3]))
            if place.module < GATEWAY_MODULE and place.node:
                return place
        raise ValueError(f"{text!r} is no place at a gateway: expected MODULE.NODE.LISTENER")
