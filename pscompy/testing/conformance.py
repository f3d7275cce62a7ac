"""All conformance cases as one class to derive from; see pscompy.testing."""

from __future__ import annotations

from pscompy.testing.close_cases import Ends
from pscompy.testing.fault_cases import Faults
from pscompy.testing.message_cases import Messages
from pscompy.testing.rma_cases import Memory

__all__ = ["Ends", "Faults", "Memory", "Messages", "Suite"]


class Suite(Messages, Memory, Ends, Faults):
    """All cases. A derived class sets `transport`, and `config` if the transport needs settings."""
