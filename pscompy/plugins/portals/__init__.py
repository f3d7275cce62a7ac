"""The portals transport: Portals 4, over a library of the machine or over the software NI (network
interface) of the package pscompy_softni. A library is used wherever there is one; the
software NI is used on request."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pscompy.plugin import Native, Transport, hookimpl
from pscompy.plugins.portals.config import VARIABLES

native = Native(__name__)


def asked(values: Mapping[str, object]) -> bool:
    """Return whether to enable this transport if PSP_PORTALS is not set: true if
    PSP_PORTALS_PROVIDER selects a Portals 4 library, or if the machine has a library of its own."""
    return values["PROVIDER"] != "auto" or has_library()


def has_library() -> bool:
    return native.unavailable() is None and bool(native.load().lib.portals_has_library())


def ops() -> int:
    """Tell the driver where the software NI is, and return the address of its operations."""
    from pscompy_softni import LIBRARY  # imported late: only this transport needs it

    native.load().lib.portals_software_at(os.fsencode(LIBRARY))
    return native.ops()


@hookimpl
def pscompy_transport() -> Transport:
    return Transport("portals", 40, VARIABLES, ops, native.unavailable, asked=asked)
