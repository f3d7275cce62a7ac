"""The conformance suite over portals, with the software NI of pscompy."""

from __future__ import annotations

from typing import ClassVar

from pscompy.testing import conformance
from pscompy.testing.close_cases import Ends
from pscompy.testing.message_cases import Messages

SOFTWARE = {"PORTALS": 1, "PORTALS_PROVIDER": "software"}


class TestPortals(conformance.Suite):
    transport = "portals"
    config: ClassVar = SOFTWARE


class TestPortalsWithoutMatching(conformance.Suite):
    transport = "portals"
    config: ClassVar = {**SOFTWARE, "PORTALS_MATCHING": 0}


class TestPortalsByPut(conformance.Suite):
    transport = "portals"
    config: ClassVar = {**SOFTWARE, "RNDV_SCHEME": "put", "PORTALS_RNDV_FRAGMENT_SIZE": "20k"}


class TestPortalsWithSmallRings(conformance.Suite):
    """Matching has room for the messages in flight of few connections."""

    transport = "portals"
    config: ClassVar = {
        **SOFTWARE,
        "RNDV_SCHEME": "am",
        "PORTALS_BUFFER_SIZE": "2k",
        "PORTALS_SENDQ_SIZE": 2,
        "PORTALS_RECVQ_SIZE": 4,
        "PORTALS_EQ_SIZE": 64,
    }


class TestPortalsWithTcp(Messages, Ends):
    """Rails of both in each connection, which outlives either of them."""

    transport = "portals"
    config: ClassVar = {**SOFTWARE, "TCP": 1, "RAILS": "portals+tcp"}
