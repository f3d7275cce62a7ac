"""The listening sockets of a session, and the locations at relays (transports that carry
handshakes) where the session can be reached too."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pscompy.control import descriptors
from pscompy.control.addresses import (
    Address,
    Detour,
    Location,
    advertised,
    listening_socket,
    numeric_host,
)
from pscompy.control.admission import Admission
from pscompy.control.event_loop import ControlThread
from pscompy.control.peer import Record
from pscompy.control.precon_options import PreconOptions
from pscompy.errors import ConnectError, PscomError, shown
from pscompy.transport.declaration import Relay

if TYPE_CHECKING:
    from pscompy.control.precon import Precon

Deliver = Callable[[Record], object]
"""Gets every connection that has come up through a listener."""


class Listener:
    """A listening socket. `address` is what peers connect to."""

    def __init__(self, deliver: Deliver, sock: socket.socket) -> None:
        self.address = ""
        self.detours: tuple[Detour, ...] = ()
        self.deliver = deliver
        self.socket = sock
        self.admission: Admission | None = None  # set once the control thread listens

    def authenticated(self, precon: Precon) -> None:
        """Note that the peer of an accepted precon has proved the key."""
        if self.admission is not None:
            self.admission.authenticated(precon)


Accept = Callable[[Listener, socket.socket], "Precon"]
"""Begins a precon on an accepted socket."""


class Listening:
    """All listeners of a session. `open` and `close` may be called from any thread."""

    def __init__(
        self,
        thread: ControlThread,
        relays: dict[str, Relay],
        options: PreconOptions,
        network: str,
        accept: Accept,
    ) -> None:
        self._thread = thread
        self._relays = relays
        self._options = options
        self._network = network  # the value of PSP_NETWORK
        self._accept = accept
        self._listeners: list[Listener] = []
        self._closing = False

    def open(self, name: str, host: str | None, port: int, deliver: Deliver) -> Listener:
        """Listen, for a session of this name. Raises `ConnectError` if that is not possible."""
        if host and ("/" in host or host.count(":") == 1):
            raise ConnectError(f"cannot listen at {host!r}: host and port are two arguments")
        try:
            sock = listening_socket(host, port, self._options.apply)
        except (OSError, UnicodeError, OverflowError) as error:
            reason = descriptors.why(error) if isinstance(error, OSError) else error
            location = f"{host or '*'}:{shown(port)}"
            raise ConnectError(f"cannot listen at {location}: {reason}") from error
        try:
            hosts = self._hosts(sock)
        except PscomError:
            sock.close()
            raise
        locations = tuple(Location(where, sock.getsockname()[1]) for where in hosts)
        listener = Listener(deliver, sock)
        listener.detours = tuple(
            Detour(relay, it.listen(partial(self._thread.call, self._on_detour, listener)))
            for relay, it in self._relays.items()
        )
        listener.address = str(Address(locations, name, listener.detours))
        self._thread.call(self._begin, listener)
        return listener

    def close(self, listener: Listener) -> None:
        """Accept no more connections; those that are up stay."""
        self._thread.call(self._end, listener)

    def close_all(self) -> None:
        """On the control thread: close all listeners, and those that are opened later."""
        self._closing = True
        for listener in list(self._listeners):
            self._end(listener)

    def forget(self) -> None:
        """In the child after a fork: close the descriptors; the parent goes on to listen."""
        for listener in self._listeners:
            if listener.admission is not None:
                listener.admission.forget()

    def _hosts(self, sock: socket.socket) -> list[str]:
        bound = numeric_host(sock.getsockname())
        if bound not in ("::", "0.0.0.0"):
            return [bound]
        return advertised(self._network, v6=bound == "::")

    def _begin(self, listener: Listener) -> None:
        if self._closing:
            listener.socket.close()
            self._end(listener)
            return
        self._listeners.append(listener)
        listener.admission = Admission(
            self._thread, listener.socket, partial(self._accept, listener)
        )

    def _on_detour(self, listener: Listener, sock: socket.socket) -> None:
        """Admit a caller that has come through a relay."""
        if listener.admission is None:
            sock.close()
        else:
            listener.admission.admit(sock)

    def _end(self, listener: Listener) -> None:
        for detour in listener.detours:
            self._relays[detour.relay].stop(detour.location)
        if listener.admission is not None:
            listener.admission.close()
        if listener in self._listeners:
            self._listeners.remove(listener)
