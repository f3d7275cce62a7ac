"""The compiled half of transports written in Python."""

from __future__ import annotations

import importlib
from typing import Any


def native() -> Any:
    """Return the module that cffi has built, which the first transport written in Python loads."""
    return importlib.import_module("pscompy.transport.python._native")
