"""The gateway: connects modules (parts of a machine) that share no fabric.

A daemon (`pscompy gateway`) is attached to the networks of several modules. In every process the
pseudo-transport `gateway` sends messages, and the handshakes before them, to processes of other
modules through the daemon if no network connects the two modules. See docs/gateway.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from pscompy.plugin import Carrier, Native, Setting, Transport, hookimpl
from pscompy_gateway.transport.config import VARIABLES

native = Native(__name__)


class Unused(Exception):
    """Raised with the reason why the transport `gateway` is not used."""


class GatewayTransport(Transport):
    """The pseudo-transport `gateway`; every session has an agent of its own, a thread that keeps
    connections to the gateways."""

    def carry(self, settings: Sequence[Setting]) -> Carrier:
        return self.carry_for(settings, -1)

    def carry_for(self, settings: Sequence[Setting], rank: int) -> Carrier:
        """Start the agent of a session, the thread that keeps connections to the gateways. Returns
        the session's transport `gateway`, and the relay that carries its handshakes. Raises
        `Unused` if no gateway is configured or the extension module is missing, and `BadRoutes` if
        PSP_GW_SERVER is malformed."""
        if not any(setting.name == "SERVER" and setting.text for setting in settings):
            raise Unused("PSP_GW_SERVER names no gateway")
        if reason := native.unavailable():
            raise Unused(reason)
        # Imported late, because most processes use no gateway.
        from pscompy_gateway.transport.agent import carry

        return carry(settings, rank)


@hookimpl
def pscompy_transport() -> Transport:
    return GatewayTransport("gateway", 10, VARIABLES, native.ops)
