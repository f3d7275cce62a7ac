"""The transport against everything that pscompy promises."""

from pscompy.testing import conformance


class TestStream(conformance.Suite):
    transport = "stream"
