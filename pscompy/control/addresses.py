"""Addresses of sockets as strings, and the addresses of this host to advertise.

A socket's address reads psp://HOST:PORT[,HOST:PORT...][,RELAY!LOCATION...]/NAME, without spaces:
every location where the session listens, best first, its locations at relays (transports that carry
handshakes), and the session's name, percent-encoded. IPv6 hosts stand in brackets. Locations
without the scheme, or without a name, are accepted too.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from pscompy.errors import ConfigError, ConnectError
from pscompy.transport.interfaces import Interface, addresses, interfaces

SCHEME = "psp://"
LOCATIONS_MAX = 16
# maximum number of addresses advertised for one host; the rest of LOCATIONS_MAX is left for relays
ADVERTISED_MAX = 12

PORT_MAX = 65535
_NOT_IN_HOST = frozenset("[]:/")
# table by which str.translate removes the characters of an IPv6 address, and of the name of its
# interface, that are neither letters nor digits
_SIGNS_OF_IPV6 = dict.fromkeys(map(ord, ":.%_-"))
_SOMEWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))


SocketAddress = tuple[Any, ...]
"""Host and port as Python's sockets have them; with flow and scope if they are of IPv6."""


class Location(NamedTuple):
    """A host (a name, or a numeric address without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Detour(NamedTuple):
    """A location that is reached through a transport's relay, which alone interprets `location`."""

    relay: str
    location: str

    def __str__(self) -> str:
        return f"{self.relay}!{self.location}"


class Address(NamedTuple):
    """All locations where a socket listens; `name` is the session's name, or "" if it is not
    known."""

    locations: tuple[Location, ...]
    name: str = ""
    detours: tuple[Detour, ...] = ()

    def __str__(self) -> str:
        name = f"/{_quoted(self.name)}" if self.name else ""
        return SCHEME + ",".join(map(str, (*self.locations, *self.detours))) + name

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an address. Raises `ConnectError` if the text is not an address."""
        if not isinstance(text, str):
            raise TypeError(f"an address is a str, not {type(text).__name__}")
        locations, _, name = text.strip().removeprefix(SCHEME).partition("/")
        pieces = locations.split(",")
        if len(pieces) > LOCATIONS_MAX:
            raise _no_address(text)
        direct = tuple(_location(piece, text) for piece in pieces if "!" not in piece)
        detours = (Detour(*piece.split("!", 1)) for piece in pieces if "!" in piece)
        return cls(direct, unquote(name), tuple(detours))


def _location(piece: str, text: str) -> Location:
    host, _, port = piece.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    known = _is_numeric(bare) if host == f"[{bare}]" else _is_host(host)
    if not (known and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= PORT_MAX):
        raise _no_address(text)
    return Location(bare, int(port))


def _is_host(text: str) -> bool:
    """Return whether the text may be a name or an IPv4 address; the resolver knows which names
    exist."""
    return text.split() == [text] and _NOT_IN_HOST.isdisjoint(text)


def _is_numeric(text: str) -> bool:
    """Return whether the text has only characters of an IPv6 address with its scope."""
    rest = text.translate(_SIGNS_OF_IPV6)
    return bool(text) and (not rest or rest.isalnum())


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _no_address(text: str) -> ConnectError:
    return ConnectError(f"{text!r} is no address: expected psp://HOST:PORT or HOST:PORT")


# ---- this host ----------------------------------------------------------------------------------


def advertised(network: str, v6: bool = True) -> list[str]:
    """Return the addresses to advertise for a socket on all interfaces, best first.

    `network` is PSP_NETWORK: networks, addresses or interfaces, in order of preference. If it is
    empty, the source address of packets to the internet comes first, then all others, because only
    the connecting peer can find out which of them it reaches; loopback if there is no other. `v6`
    includes IPv6. Raises `ConfigError` if none of this host's addresses matches.
    """
    wanted = network.replace(",", " ").split()
    if not wanted:
        return _reachable(v6)[:ADVERTISED_MAX]
    mine = interfaces(v6)
    chosen = [str(own.address) for word in wanted for own in mine if _matches(own, word)]
    if not chosen:
        have = ", ".join(f"{own.name} {own.address}" for own in mine) or "none"
        raise ConfigError(
            f"PSP_NETWORK={network!r} matches no address of this host (it has: {have})",
            name="PSP_NETWORK",
            value=network,
            allowed="networks, addresses or interfaces of this host",
        )
    return list(dict.fromkeys(chosen))[:ADVERTISED_MAX]


def _matches(own: Interface, word: str) -> bool:
    if own.name == word:
        return True
    with contextlib.suppress(ValueError):
        return own.address in ip_network(word, strict=False)
    return False


def _reachable(v6: bool) -> list[str]:
    """Return all addresses but the loopback's; the source address of packets to the internet is
    first."""
    outside = addresses(v6)
    first = [address for address in _primary() if address in outside]
    return list(dict.fromkeys(first + outside)) or ["127.0.0.1"]


def _primary() -> Iterator[str]:
    """Yield the source addresses of packets to the internet, by the routing table. Sends
    nothing."""
    for target, family in _SOMEWHERE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            yield str(probe.getsockname()[0])


def listening_socket(
    host: str | None, port: int, prepare: Callable[[socket.socket], object]
) -> socket.socket:
    """Return a non-blocking listening socket. If `host` is None, it listens at all addresses, IPv4
    and IPv6. prepare(socket) is called before a peer can connect; accepted sockets inherit its
    options.

    Raises `OSError` if the socket cannot be bound, `OverflowError` if there is no such port.
    """
    if not 0 <= port <= PORT_MAX:
        raise OverflowError(f"a port is a number from 0 to {PORT_MAX}")
    if host is not None:
        return _listen(*_resolve(host, port), prepare)
    try:
        return _listen(socket.AF_INET6, ("::", port), prepare, dual=True)
    except OSError:
        if port and socket.has_ipv6 and _in_use(port):
            raise
        return _listen(socket.AF_INET, ("0.0.0.0", port), prepare)


def _in_use(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return True
    return False


def numeric_host(where: SocketAddress) -> str:
    """Return the host of a socket address. The host of a link-local address includes the interface,
    as in fe80::1%eth0."""
    return socket.getnameinfo(where, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]


def _resolve(host: str, port: int) -> tuple[int, SocketAddress]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = found[0]
    return family, where


def _listen(
    family: int,
    where: SocketAddress,
    prepare: Callable[[socket.socket], object],
    dual: bool = False,
) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        prepare(listening)
        listening.bind(where)
        listening.listen(socket.SOMAXCONN)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
