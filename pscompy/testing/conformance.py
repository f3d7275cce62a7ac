"""All conformance cases as one class to derive from; see pscompy.testing."""

from __future__ import annotations

from pscompy.testing.close_cases import Ends
from pscompy.testing.fault_cases import Trouble
from pscompy.testing.message_cases import Messages
from pscompy.testing.rma_cases import Memory

__all__ = ["Ends", "Memory", "Messages", "Suite", "Trouble"]


class Suite(Messages, Memory, Ends, Trouble):
    """All cases. A derived class sets `transport`, and `config` if the transport needs settings."""
