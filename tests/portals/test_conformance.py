"""The conformance suite over portals, with the software NI of pscompy."""

from __future__ import annotations

from typing import ClassVar

from pscompy.testing import conformance
from pscompy.testing.base import Link
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


class TestPortalsOverTwoRails(conformance.Suite):
    """A put to a region is made of messages, which can move to the other rail."""

    transport = "portals"
    config: ClassVar = {**SOFTWARE, "PORTALS_INTERFACE": "127.0.0.1,127.0.0.2"}

    @staticmethod
    def _check_how(link: Link, counts: dict[str, int], direct: str, cap: int) -> None:
        how = "rma_emulated" if direct == "rma_put" else direct
        conformance.Suite._check_how(link, counts, how, cap)


class TestPortalsOverTwoRailsByPut(TestPortalsOverTwoRails):
    config: ClassVar = {**TestPortalsOverTwoRails.config, "RNDV_SCHEME": "put"}


class TestPortalsWithTcp(Messages, Ends):
    """Rails of both in each connection, which outlives either of them."""

    transport = "portals"
    config: ClassVar = {**SOFTWARE, "TCP": 1, "RAILS": "portals+tcp"}
