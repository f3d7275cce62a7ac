"""The addresses of this host's network interfaces."""

from __future__ import annotations

import array
import contextlib
import fcntl
import socket
import struct
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

_SIOCGIFCONF, _SIOCGIFFLAGS, _IFF_UP = 0x8912, 0x8913, 1
_IFREQ = 40  # bytes of a struct ifreq: a name, and an address behind it
_IFREQS_MAX = 256
_IF_INET6 = Path("/proc/net/if_inet6")
_LINK_SCOPE = 0x20


class Interface(NamedTuple):
    """One address of one network interface."""

    name: str
    address: IPv4Address | IPv6Address


def addresses(v6: bool = True) -> list[str]:
    """Return the IP addresses of this host, without those of the loopback; `v6` includes IPv6."""
    return [str(own.address) for own in interfaces(v6) if not own.address.is_loopback]


def interfaces(v6: bool = True) -> list[Interface]:
    """Return the addresses of the interfaces that are up, without IPv6's link-local addresses."""
    found = [*_addresses_v4(), *(_addresses_v6() if v6 else ())]
    return [Interface(name, ip_address(address)) for name, address in found]


def _addresses_v4() -> Iterator[tuple[str, bytes]]:
    """Yield name and IPv4 address (4 bytes) of each interface that is up, by SIOCGIFCONF."""
    room = array.array("B", bytes(_IFREQ * _IFREQS_MAX))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("iP", len(room), room.buffer_info()[0])
        used = struct.unpack("iP", fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, asked))[0]
        for at in range(0, used, _IFREQ):
            name = bytes(room[at : at + 16]).partition(b"\0")[0]
            request = struct.pack(f"{_IFREQ}s", name)
            flags = fcntl.ioctl(probe.fileno(), _SIOCGIFFLAGS, request)[16:18]
            if int.from_bytes(flags, sys.byteorder) & _IFF_UP:
                label = name.decode(errors="replace").partition(":")[0]
                yield label, bytes(room[at + 20 : at + 24])


def _addresses_v6() -> Iterator[tuple[str, bytes]]:
    with contextlib.suppress(OSError), _IF_INET6.open() as lines:
        for line in lines:
            digits, _, _, scope, _, name = line.split()
            if int(scope, 16) != _LINK_SCOPE:
                yield name, bytes.fromhex(digits)
