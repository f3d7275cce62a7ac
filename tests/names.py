"""Names of parametrized tests, and keys for the sessions of tests."""

from __future__ import annotations

import re

# Keys that are not secret, but have the form of random ones.
A_KEY = "random:" + "a1" * 32
ANOTHER_KEY = "random:" + "b2" * 32


def nameless(value: object) -> str:
    """The repr of `value` without addresses, so that all processes name the tests alike."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
