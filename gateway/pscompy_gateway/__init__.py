"""The gateway: modules of a machine that share no fabric talk as if they did.

A daemon (`pscompy gateway`) stands in the networks of several modules. In every process the
pseudo-transport `gateway` brings messages to processes of other modules through it, and carries
their handshake, where no network leads from one module to the other. See docs/gateway.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from pscompy.plugin import Carrier, Native, Setting, Transport, hookimpl
from pscompy_gateway.transport.config import VARIABLES

native = Native(__name__)


class Unused(Exception):
    """The reason why the transport is not used."""


class GatewayTransport(Transport):
    """A table of operations with an agent of its own for every session."""

    def carry(self, settings: Sequence[Setting]) -> Carrier:
        """Start an agent. Raises `Unused` if no gateway is named."""
        if not any(setting.name == "SERVER" and setting.text for setting in settings):
            raise Unused("PSP_GW_SERVER names no gateway")
        if reason := native.unavailable():
            raise Unused(reason)
        # Not imported before: most processes have no gateway.
        from pscompy_gateway.transport.agent import carry

        return carry(settings)


@hookimpl
def pscompy_transport() -> Transport:
    return GatewayTransport("gateway", 10, VARIABLES, native.ops)
