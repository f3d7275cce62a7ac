"""The environment variables PSP_TCP_*, the settings of the transport tcp."""

from __future__ import annotations

import ipaddress

from pscompy.plugin import Parser, Var, flag, integer, seconds, size


def _items(given: str) -> list[str]:
    return given.replace(",", " ").replace(";", " ").split()


def _parse_addresses(given: str) -> str:
    for item in _items(given):
        _check_address(item)
    return given


def _parse_networks(given: str) -> str:
    """Check a list of networks, addresses and names. The C code finds out whether a name is that of
    an interface or of a host."""
    for item in _items(given):
        if "/" in item:
            _check_network(item)
        elif ":" in item:
            _check_address(item)
        elif len(item) > 255 or not all(_stands_in_name(letter) for letter in item):
            raise ValueError(item)
    return given


def _stands_in_name(letter: str) -> bool:
    return letter.isascii() and (letter.isalnum() or letter in "_.-")


def _check_address(item: str) -> None:
    ipaddress.ip_address(item)


def _check_network(item: str) -> None:
    ipaddress.ip_network(item, strict=False)


def _parse_ports(given: str) -> str:
    first, dash, last = given.partition("-")
    low, high = int(first), int(last if dash else first)
    if not 0 <= low <= high <= 65535 or (dash and low == 0):
        raise ValueError(given)
    return given


addresses = Parser(_parse_addresses, "IP addresses, separated by commas")
networks = Parser(
    _parse_networks, "networks (10.0.0.0/8), interfaces or hosts, separated by commas"
)
ports = Parser(_parse_ports, "a port, a range such as 5000-5100, or 0 for any")

VARIABLES = (
    Var(
        "HOST",
        "",
        addresses,
        "Addresses to listen on; empty: chosen by PSP_TCP_NETWORK.",
        selects=True,
    ),
    Var(
        "NETWORK",
        "",
        networks,
        "Networks, interfaces or hosts that choose the addresses to listen on; empty: all.",
        parent="NETWORK",
        selects=True,
    ),
    Var(
        "RAILS",
        "",
        networks,
        "Networks, interfaces or own addresses, or all for every interface: each is a rail with"
        " addresses and a listener of its own, in place of PSP_TCP_HOST and PSP_TCP_NETWORK. Empty:"
        " one rail.",
        selects=True,
    ),
    Var(
        "RAIL_TIMEOUT",
        "1.5",
        seconds,
        "How long one of several rails of a connection may leave unanswered what was sent; then the"
        " connection goes on without it.",
    ),
    Var(
        "PORT",
        "0",
        ports,
        "Port to listen on, or a range of which the first free one is taken.",
        selects=True,
    ),
    Var("BACKLOG", "262144", integer(1, 2**31 - 1), "Most connections waiting to be accepted."),
    Var("SO_SNDBUF", "0", size(0, 2**30), "Socket send buffer in bytes; 0: the kernel decides."),
    Var("SO_RCVBUF", "0", size(0, 2**30), "Socket receive buffer in bytes; 0: the kernel decides."),
    Var("NODELAY", "1", flag, "Send small messages at once (TCP_NODELAY)."),
    Var("ACCEPT_TIMEOUT", "5", seconds, "How long a caller may take to send its greeting."),
    Var("CONNECT_TIMEOUT", "5", seconds, "How long one address of a peer may take to answer."),
    Var(
        "BUFFER_SIZE",
        "64k",
        size(1 << 10, 1 << 26),
        "Longest copied message.",
    ),
    Var(
        "RENDEZVOUS",
        "auto",
        size(0, auto=True),
        "Messages from this size on use the rendezvous protocol.",
        parent="RENDEZVOUS",
    ),
)
