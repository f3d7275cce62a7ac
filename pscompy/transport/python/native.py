"""The compiled half of transports written in Python."""

from __future__ import annotations

import importlib
from typing import Any


def native() -> Any:
    """The module that cffi has built. It is loaded with the first transport written in Python."""
    return importlib.import_module("pscompy.transport.python._native")
