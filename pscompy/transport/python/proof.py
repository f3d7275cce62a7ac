"""Both ends of a link prove that they hold its one-time token, in three frames. No I/O.

    connector -> acceptor   hello: whom I want, my nonce
    acceptor -> connector   answer: my nonce, my proof
    connector -> acceptor   proof

A proof is an HMAC under the token over who proves it, the acceptor's number and both nonces.
"""

from __future__ import annotations

import hmac
import os
import struct

MAGIC = b"pscompy1"
NONCE_SIZE = 16
PROOF_SIZE = 32
_HELLO = struct.Struct(f"<8sQ{NONCE_SIZE}s")


class Refused(OSError):
    """The other end is not whom we want."""


def _prove(token: bytes, role: bytes, number: int, nonces: bytes) -> bytes:
    return hmac.digest(token, role + struct.pack("<Q", number) + nonces, "sha256")


def read_hello(frame: bytes) -> tuple[int, bytes]:
    """The number of the endpoint that a caller wants, and its nonce."""
    if len(frame) != _HELLO.size:
        raise Refused("a caller speaks something else")
    magic, number, nonce = _HELLO.unpack(frame)
    if magic != MAGIC:
        raise Refused("a caller speaks something else")
    return number, nonce


class Connecting:
    """The connector's end: say `hello`, then give it the answer."""

    def __init__(self, token: bytes, number: int) -> None:
        self._token = token
        self._number = number
        self._nonce = os.urandom(NONCE_SIZE)
        self.hello = _HELLO.pack(MAGIC, number, self._nonce)

    def answered(self, frame: bytes) -> bytes:
        """The proof to send; with it this end is done. Refused: not our peer."""
        if len(frame) != NONCE_SIZE + PROOF_SIZE:
            raise Refused("the peer speaks something else")
        nonces = self._nonce + frame[:NONCE_SIZE]
        expected = _prove(self._token, b"acceptor", self._number, nonces)
        if not hmac.compare_digest(frame[NONCE_SIZE:], expected):
            raise Refused("the peer does not know the token of this link")
        return _prove(self._token, b"connector", self._number, nonces)


class Accepting:
    """The acceptor's end: send the `answer`, then give it the proof."""

    def __init__(self, token: bytes, number: int, nonce: bytes) -> None:
        nonces = nonce + os.urandom(NONCE_SIZE)
        self.answer = nonces[NONCE_SIZE:] + _prove(token, b"acceptor", number, nonces)
        self._expected = _prove(token, b"connector", number, nonces)

    def proved(self, frame: bytes) -> None:
        """Refused: not our peer."""
        if not hmac.compare_digest(frame, self._expected):
            raise Refused("the peer does not know the token of this link")
