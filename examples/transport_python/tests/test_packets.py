"""The transport against everything that pscompy promises."""

from pscompy.testing import conformance


class TestPackets(conformance.Suite):
    transport = "packets"
