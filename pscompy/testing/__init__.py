"""The conformance suite: a transport proves that it carries everything that pscompy promises.

In a repository of its own a transport needs these lines, and pytest:

    from pscompy.testing import conformance

    class TestMine(conformance.Suite):
        transport = "mine"

Every case runs over two real processes, checks what arrives, and asserts by the counters which
protocol carried it. What the transport cannot do is skipped, with the reason.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "pscompy.testing.close_cases",
    "pscompy.testing.base",
    "pscompy.testing.rma_cases",
    "pscompy.testing.message_cases",
    "pscompy.testing.fault_cases",
)
