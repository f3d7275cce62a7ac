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
    """Return the number of the endpoint that the caller wants, and its nonce."""
    if len(frame) != _HELLO.size:
        raise Refused("a caller speaks another protocol")
    magic, number, nonce = _HELLO.unpack(frame)
    if magic != MAGIC:
        raise Refused("a caller speaks another protocol")
    return number, nonce


class Proof:
    """One end's half of the proof: send `first`, then pass the peer's frame to `receive`. `own` and
    `peer` are the numbers of both endpoints."""

    first: bytes
    _awaited: int  # the kind of the frame that the peer must send next

    def __init__(self, role: int, token: bytes, own: int, peer: int) -> None:
        module = native()
        self._ffi, self._lib = module.ffi, module.lib
        proof = self._lib.bridge_proof_create(role, token, own, peer)
        if not proof:
            raise MemoryError("no memory or no random bytes for a proof")
        self._proof = self._ffi.gc(proof, self._lib.bridge_proof_destroy)

    def receive(self, frame: bytes) -> bytes:
        """Process the peer's frame. Returns the reply, or empty bytes if there is none; this end
        has then finished. Raises `Refused` if the peer does not hold the token."""
        return self._take(self._awaited, frame)

    def _take(self, kind: int, body: bytes) -> bytes:
        length = self._lib.bridge_proof_receive(self._proof, kind, body, len(body))
        if length < 0:
            raise Refused(self._ffi.string(self._lib.bridge_proof_why(self._proof)).decode())
        return bytes(self._ffi.buffer(self._lib.bridge_proof_reply(self._proof), length))


class Connecting(Proof):
    """The connector's end; `first` is its hello."""

    def __init__(self, token: bytes, own: int, peer: int) -> None:
        super().__init__(native().lib.PSC_ROLE_CONNECTOR, token, own, peer)
        self._awaited = self._lib.PSC_PROOF_CHALLENGE
        hello = self._lib.bridge_proof_hello(self._proof)
        nonce = bytes(self._ffi.buffer(hello, self._lib.PSC_PROOF_NONCE_SIZE))
        self.first = _HELLO.pack(MAGIC, peer, nonce)


class Accepting(Proof):
    """The acceptor's end, which a hello with this nonce has reached; `first` is its challenge."""

    def __init__(self, token: bytes, own: int, peer: int, nonce: bytes) -> None:
        super().__init__(native().lib.PSC_ROLE_ACCEPTOR, token, own, peer)
        self._awaited = self._lib.PSC_PROOF_ANSWER
        self.first = self._take(self._lib.PSC_PROOF_HELLO, nonce)
