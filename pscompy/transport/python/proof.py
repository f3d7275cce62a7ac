"""Both ends of a link prove that they hold its one-time token, in three frames. No I/O.

    connector -> acceptor   hello: the number of the wanted endpoint, a nonce
    acceptor -> connector   challenge: a nonce, a proof
    connector -> acceptor   answer: a proof

Transports in C use the same proofs and the same code (transport/kit/token_proof.h). Instead of
sending a refusal, an end closes the link.
"""

from __future__ import annotations

import struct

from pscompy.transport.python.native import native

MAGIC = b"pscompy2"
_HELLO = struct.Struct("<8sQ16s")


class Refused(OSError):
    """The other end is not the expected peer."""


def read_hello(frame: bytes) -> tuple[int, bytes]:
    """Returns the number of the endpoint that the caller wants, and its nonce."""
    if len(frame) != _HELLO.size:
        raise Refused("a caller speaks another protocol")
    magic, number, nonce = _HELLO.unpack(frame)
    if magic != MAGIC:
        raise Refused("a caller speaks another protocol")
    return number, nonce


class Proof:
    """One end's half of the proof; `own` and `peer` are the numbers of both endpoints."""

    def __init__(self, role: int, token: bytes, own: int, peer: int) -> None:
        module = native()
        self._ffi, self._lib = module.ffi, module.lib
        proof = self._lib.bridge_proof_create(role, token, own, peer)
        if not proof:
            raise MemoryError("no memory or no random bytes for a proof")
        self._proof = self._ffi.gc(proof, self._lib.bridge_proof_destroy)

    def nonce(self) -> bytes:
        """The connector's nonce, which is sent in its hello."""
        hello = self._lib.bridge_proof_hello(self._proof)
        return bytes(self._ffi.buffer(hello, self._lib.PSC_PROOF_NONCE_SIZE))

    def receive(self, kind: int, body: bytes) -> bytes:
        """Returns the reply to a message, or empty bytes if there is none. Raises `Refused`."""
        length = self._lib.bridge_proof_receive(self._proof, kind, body, len(body))
        if length < 0:
            raise Refused(self._ffi.string(self._lib.bridge_proof_why(self._proof)).decode())
        return bytes(self._ffi.buffer(self._lib.bridge_proof_reply(self._proof), length))


class Connecting:
    """The connector's end: send `hello`, then pass the challenge to `challenged`."""

    def __init__(self, token: bytes, own: int, peer: int) -> None:
        self._lib = native().lib
        self._proof = Proof(self._lib.PSC_ROLE_CONNECTOR, token, own, peer)
        self.hello = _HELLO.pack(MAGIC, peer, self._proof.nonce())

    def challenged(self, frame: bytes) -> bytes:
        """Returns the answer to send; this end has then finished. Raises `Refused` if the acceptor
        does not hold the token."""
        return self._proof.receive(self._lib.PSC_PROOF_CHALLENGE, frame)


class Accepting:
    """The acceptor's end: send the `challenge`, then pass the answer to `answered`."""

    def __init__(self, token: bytes, own: int, peer: int, nonce: bytes) -> None:
        self._lib = native().lib
        self._proof = Proof(self._lib.PSC_ROLE_ACCEPTOR, token, own, peer)
        self.challenge = self._proof.receive(self._lib.PSC_PROOF_HELLO, nonce)

    def answered(self, frame: bytes) -> None:
        """Check the connector's answer. Raises `Refused` if the connector does not hold the
        token."""
        self._proof.receive(self._lib.PSC_PROOF_ANSWER, frame)
