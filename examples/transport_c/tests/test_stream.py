"""Runs pscompy's tests for transports with this transport."""

from pscompy.testing import conformance


class TestStream(conformance.Suite):
    transport = "stream"
