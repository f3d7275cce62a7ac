"""The greeting of a precon, whose fields are read before the peer has proved the key.

    magic 8, lowest version 2, highest version 2, flags 4, nonce 32, zero 16

The numbers are little-endian.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from pscompy.control.handshake.limits import NONCE_SIZE, VERSION_MAX, VERSION_MIN
from pscompy.control.handshake.tables import RemoteProtocolError

MAGIC = b"\x93pscompy"
FLAG_FULL = 1  # the listener has no descriptor left for this precon, and ends it

_HELLO = struct.Struct("<8sHHI32s16x")
HELLO_SIZE = _HELLO.size


class Hello(NamedTuple):
    """The greeting: the only fields that are read of a peer that has not authenticated yet."""

    nonce: bytes
    version_min: int = VERSION_MIN
    version_max: int = VERSION_MAX
    flags: int = 0

    def pack(self) -> bytes:
        return _HELLO.pack(MAGIC, self.version_min, self.version_max, self.flags, self.nonce)

    @classmethod
    def unpack(cls, data: bytes) -> Hello:
        magic, lowest, highest, flags, nonce = _HELLO.unpack(data)
        if magic != MAGIC:
            raise RemoteProtocolError("the peer does not speak pscompy's precon protocol")
        if lowest > highest:
            raise RemoteProtocolError(f"malformed version range {lowest}...{highest}")
        return cls(nonce, lowest, highest, flags)


def check_magic(data: bytes | bytearray) -> None:
    """Raise `RemoteProtocolError` as soon as the first bytes cannot be those of a greeting."""
    if not MAGIC.startswith(data[: len(MAGIC)]):
        raise RemoteProtocolError("the peer does not speak pscompy's precon protocol")


def full_greeting() -> bytes:
    """Return the greeting of a listener that has no descriptor left for a dialer, before it
    closes."""
    return Hello(os.urandom(NONCE_SIZE), flags=FLAG_FULL).pack()
