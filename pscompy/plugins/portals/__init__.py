"""portals: Portals 4, by a library of the machine or by the software NI of this package."""

from __future__ import annotations

from collections.abc import Mapping

from pscompy.plugin import Native, Transport, hookimpl
from pscompy.plugins.portals.config import VARIABLES

native = Native(__name__)


def asked(values: Mapping[str, object]) -> bool:
    """Whether the variables ask for it: the software NI is for those who want it."""
    return values["PROVIDER"] == "software"


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("portals", 40, VARIABLES, native.ops, native.unavailable, asked=asked)
