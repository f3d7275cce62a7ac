"""The environment variables PSP_LOOP_*, the settings of the transport loop."""

from __future__ import annotations

from pscompy.plugin import Var, integer, size

VARIABLES = (
    Var("BUFFER_SIZE", "8k", size(1 << 10, 1 << 26), "Longest copied message."),
    Var("SENDQ_SIZE", "64", integer(2, 1 << 20), "Copied messages in flight per connection."),
    Var(
        "RENDEZVOUS",
        "auto",
        size(0, auto=True),
        "Messages from this size on use the rendezvous protocol.",
        parent="RENDEZVOUS",
    ),
)
