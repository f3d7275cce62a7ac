"""How the names of tests spell their parameters; and keys for their sessions."""

from __future__ import annotations

import re

# Keys that are no secret, and as good as random ones.
A_KEY = "random:" + "a1" * 32
ANOTHER_KEY = "random:" + "b2" * 32


def nameless(value: object) -> str:
    """Its repr without an address: every process that collects the tests names them alike."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
