"""All cases as one class to derive from; see the package."""

from __future__ import annotations

from pscompy.testing.ends import Ends
from pscompy.testing.memory import Memory
from pscompy.testing.messages import Messages
from pscompy.testing.trouble import Trouble

__all__ = ["Ends", "Memory", "Messages", "Suite", "Trouble"]


class Suite(Messages, Memory, Ends, Trouble):
    """Everything. Set `transport`, and `config` where it needs settings to run here."""
