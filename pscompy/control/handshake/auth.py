"""Proof of the key, seals on frames, and one-time tokens for lanes. No I/O.

Both greetings carry a fresh nonce, and nothing of the key. The dialer's proof, which depends on
both nonces, shows whether both sides hold the same key. An attacker who dials, or who reads the
wire, can test keys against a proof: each test of a key that a human may have chosen costs a scrypt
(keys.py), and a random key cannot be found. A listener proves nothing to a dialer that has not
proved the key itself.

HKDF-SHA256 over the key and both greetings gives one secret per direction, so that no bytes of one
precon, or of one direction, can be replayed in another. Every frame is sealed with HMAC-SHA256 over
the seal of the frame before it in that direction (the first frame: over the transcript of the
greetings), its number and its content: an attacker on the path cannot change, remove or reorder
frames, for instance to strip a candidate. This is authentication without encryption: an attacker
who reads the wire can read the content.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

from pscompy.control.handshake.limits import MAC_SIZE
from pscompy.control.handshake.tables import RemoteProtocolError

TOKEN_SIZE = 32
# The fields that a seal covers before the content of a frame: the seal of the frame before it and
# its own number, each with its length, and the length of the content.
_SEALED = struct.Struct(f"<Q{MAC_SIZE}sQQQ")


def expand(key: bytes, label: bytes, *parts: bytes) -> bytes:
    """Return 32 bytes of HKDF-Expand of `key`; `label` and `parts` name their purpose."""
    info = label + b"".join(parts)
    return hmac.digest(key, info + b"\x01", "sha256")


class Secrets:
    """The secrets that both sides derive from the key and the two greetings."""

    __slots__ = ("dialer", "listener", "tokens", "transcript")

    def __init__(self, secret: bytes, dialer_hello: bytes, listener_hello: bytes) -> None:
        greetings = b"pscompy precon" + dialer_hello + listener_hello
        self.transcript = hashlib.sha256(greetings).digest()
        extracted = hmac.digest(self.transcript, secret, "sha256")
        self.dialer = expand(extracted, b"pscompy dialer")  # seals what the dialer sends
        self.listener = expand(extracted, b"pscompy listener")
        self.tokens = expand(extracted, b"pscompy tokens")

    def lane_token(self, attempt: int, lane: int) -> bytes:
        """Return the token of one lane of one attempt, the same on both sides."""
        numbers = attempt.to_bytes(4, "little") + lane.to_bytes(4, "little")
        return expand(self.tokens, b"pscompy lane", numbers)


class Seal:
    """The seals of one direction of one precon: the sender makes them, the receiver checks them."""

    def __init__(self, key: bytes, transcript: bytes) -> None:
        self._key = key
        self._number = 0
        self._last = transcript

    def proof(self) -> bytes:
        """Return the first seal of the direction, which proves the key and seals the greetings."""
        return self.next(b"proof")

    def next(self, content: bytes) -> bytes:
        """Return the seal of the next frame."""
        sealed = _SEALED.pack(MAC_SIZE, self._last, 8, self._number, len(content)) + content
        self._last = hmac.digest(self._key, sealed, "sha256")
        self._number += 1
        return self._last

    def check(self, content: bytes, received: bytes) -> None:
        """Raise `RemoteProtocolError` if this is not the seal of the next frame."""
        if len(received) != MAC_SIZE or not hmac.compare_digest(self.next(content), received):
            raise RemoteProtocolError("a frame was altered in transit (wrong authentication code)")
