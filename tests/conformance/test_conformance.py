"""Every transport of this machine, proved by the suite that third parties use."""

from __future__ import annotations

from pscompy.testing import conformance


class TestShm(conformance.Suite):
    transport = "shm"


class TestTcp(conformance.Suite):
    transport = "tcp"
