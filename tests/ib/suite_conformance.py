"""The conformance suite over ib; run inside the guest (see test_guest.py)."""

from __future__ import annotations

from typing import ClassVar

from pscompy.testing import conformance


class TestRingsAndPut(conformance.Suite):
    transport = "ib"
    config: ClassVar = {"IB_EAGER": "rdma", "RNDV_SCHEME": "put"}


class TestSharedQueueAndGet(conformance.Suite):
    transport = "ib"
    config: ClassVar = {"IB_EAGER": "srq", "RNDV_SCHEME": "get"}


class TestSmallQueuesAndMessages(conformance.Suite):
    transport = "ib"
    config: ClassVar = {
        "RNDV_SCHEME": "am",
        "IB_BUFFER_SIZE": "2k",
        "IB_RECVQ_SIZE": 4,
        "IB_SENDQ_SIZE": 16,
    }
