"""The numbers of the precon protocol that other modules need, too: version, sizes, limits."""

from __future__ import annotations

# Versions of the whole wire: of the precon protocol's frames, the datagrams of node-local connect,
# the core's messages (core/wire.h) and those of the transports of pscompy. Any change of one of
# them that a peer of another release would misunderstand takes a new number; see docs/versions.md.
VERSION_MIN = 7
VERSION_MAX = 7

NONCE_SIZE = 32
MAC_SIZE = 32
UID_SIZE = 16
TOKEN_SIZE = 32

LANES_MAX = 4  # maximum number of lanes of a connection: PSC_LANES_MAX of core/wire.h
ADDRESS_MAX = 1024
NAME_MAX = 255
