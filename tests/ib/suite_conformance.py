"""The conformance suite over ib; run inside the guest (see test_conformance.py)."""

from __future__ import annotations

from typing import ClassVar

import pytest

from pscompy.testing import conformance
from tests.ib.devices import FEW_BUFFERS
from tests.left_out import ALL

SIZES = {} if ALL else FEW_BUFFERS


@pytest.mark.usefixtures("second_device")
class TestRingsAndPutOverTwoRails(conformance.Suite):
    transport = "ib"
    config: ClassVar = {**SIZES, "IB_EAGER": "rdma", "RNDV_SCHEME": "put", "IB_HCA": "all"}


class TestSharedQueueAndGet(conformance.Suite):
    transport = "ib"
    config: ClassVar = {**SIZES, "IB_EAGER": "srq", "RNDV_SCHEME": "get"}


class TestSmallQueuesAndMessages(conformance.Suite):
    transport = "ib"
    config: ClassVar = {
        "RNDV_SCHEME": "am",
        "IB_BUFFER_SIZE": "2k",
        "IB_RECVQ_SIZE": 4,
        "IB_SENDQ_SIZE": 16,
    }
