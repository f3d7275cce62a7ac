"""How the names of tests spell their parameters."""

from __future__ import annotations

import re


def nameless(value: object) -> str:
    """Its repr without an address: every process that collects the tests names them alike."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
