"""The conformance suite: tests that a transport keeps all guarantees of pscompy.

In a repository of its own a transport needs pytest and these lines:

    from pscompy.testing import conformance

    class TestMine(conformance.Suite):
        transport = "mine"

Every case runs two real processes, checks the contents that arrive, and asserts by the counters
which protocol was used. Cases that the transport does not support are skipped, with the reason.
"""

from __future__ import annotations

import sys

if "pytest" in sys.modules:  # the far process starts faster without pytest
    sys.modules["pytest"].register_assert_rewrite(
        "pscompy.testing.close_cases",
        "pscompy.testing.base",
        "pscompy.testing.rma_cases",
        "pscompy.testing.message_cases",
        "pscompy.testing.fault_cases",
    )
