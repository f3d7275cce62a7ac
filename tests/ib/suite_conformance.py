"""The conformance suite over ib; run inside the guest (see test_guest.py)."""

from __future__ import annotations

from typing import ClassVar

from pscompy.testing import conformance


class TestIb(conformance.Suite):
    transport = "ib"


class TestIbByPut(conformance.Suite):
    transport = "ib"
    config: ClassVar = {"RNDV_SCHEME": "put"}


class TestIbByMessages(conformance.Suite):
    transport = "ib"
    config: ClassVar = {"RNDV_SCHEME": "am"}


class TestIbWithSmallQueues(conformance.Suite):
    transport = "ib"
    config: ClassVar = {"IB_BUFFER_SIZE": "2k", "IB_RECVQ_SIZE": 4, "IB_SENDQ_SIZE": 16}
