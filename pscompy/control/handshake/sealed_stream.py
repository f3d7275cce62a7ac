"""The bytes of one side of a precon: greeting and proof, then sealed frames. No I/O.

A stream cuts what arrives into pieces, checks their seals, and seals what is sent. It does not
know the order in which pieces may arrive: the `Handshake` checks that.
"""

from __future__ import annotations

import os
from typing import NoReturn

from pscompy import __version__
from pscompy.control.handshake import frames, limits
from pscompy.control.handshake.auth import Seal, Secrets
from pscompy.control.handshake.frames import Frame
from pscompy.control.handshake.greeting import HELLO_SIZE, Hello, check_magic
from pscompy.control.handshake.keys import Key
from pscompy.control.handshake.tables import RemoteProtocolError
from pscompy.errors import AuthError, VersionMismatch


class SealedStream:
    """The input and output of one side of a precon; `dialer`: this side has dialed."""

    def __init__(self, dialer: bool, key: Key, versions: tuple[int, int]) -> None:
        self.hello = Hello(os.urandom(limits.NONCE_SIZE), *versions)
        self._dialer = dialer
        self._key = key
        self._in = bytearray()
        self._out = bytearray()
        self._secrets: Secrets  # set with both seals once the peer's greeting is known
        self._seal: Seal
        self._check: Seal

    # ---- output ----

    def output(self) -> bytes:
        """Return the bytes to send now; each is returned once."""
        data = bytes(self._out)
        self._out.clear()
        return data

    def send_hello(self) -> None:
        self._out += self.hello.pack()

    def send_proof(self) -> None:
        """Prove that this side has the key."""
        self._out += self._seal.proof()

    def send(self, frame: Frame) -> None:
        self.send_content(frames.encode(frame))

    def send_content(self, content: bytes) -> None:
        """Send the header and body of a frame, followed by their seal."""
        self._out += content + self._seal.next(content)

    # ---- input ----

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        self._in += data

    def take_hello(self) -> Hello | None:
        """Return the peer's greeting once it is complete."""
        check_magic(self._in)
        data = self._take(HELLO_SIZE)
        return None if data is None else Hello.unpack(data)

    def take_proof(self) -> bytes | None:
        """Return the peer's proof once it is complete."""
        return self._take(limits.MAC_SIZE)

    def take_frame(self) -> Frame | None:
        """Return the next frame once it is complete and its seal was checked."""
        if len(self._in) < frames.HEADER_SIZE:
            return None
        size = frames.HEADER_SIZE + frames.body_size(self._in[: frames.HEADER_SIZE])
        sealed = self._take(size + limits.MAC_SIZE)
        if sealed is None:
            return None
        self._check.check(sealed[:size], sealed[size:])
        return frames.decode(sealed[:size])

    def _take(self, size: int) -> bytes | None:
        if len(self._in) < size:
            return None
        piece = bytes(self._in[:size])
        del self._in[:size]
        return piece

    # ---- keys ----

    def compare(self, theirs: Hello) -> None:
        """Raise `VersionMismatch` if the greetings have no version in common, `AuthError` if the
        peer mirrors this side's greeting."""
        ours = self.hello
        if max(ours.version_min, theirs.version_min) > min(ours.version_max, theirs.version_max):
            raise VersionMismatch(
                f"this side (pscompy {__version__}) speaks versions {ours.version_min}..."
                f"{ours.version_max} of the wire protocol, the peer {theirs.version_min}..."
                f"{theirs.version_max}: use releases of pscompy that have one in common"
            )
        if theirs.nonce == ours.nonce:
            raise AuthError("the peer only mirrors what this side sends")

    def derive(self, theirs: Hello) -> None:
        """Derive the secrets of this precon from the key and both greetings."""
        greetings = (self.hello.pack(), theirs.pack())
        dialers, listeners = greetings if self._dialer else reversed(greetings)
        self._secrets = Secrets(self._key.secret, dialers, listeners)
        keys = (self._secrets.dialer, self._secrets.listener)
        self._seal = Seal(keys[not self._dialer], self._secrets.transcript)
        self._check = Seal(keys[self._dialer], self._secrets.transcript)

    def check_proof(self, proof: bytes) -> None:
        """Raise `AuthError` if the peer does not hold the same key."""
        try:
            self._check.check(b"proof", proof)
        except RemoteProtocolError:
            self._reject(proof)

    def _reject(self, proof: bytes) -> NoReturn:
        """Raise `AuthError` for a wrong proof; a listener sends WRONG_PROOF to the dialer first. A
        listener that sends any other wrong proof has not shown that it could check the dialer's."""
        if not self._dialer:
            self._out += frames.WRONG_PROOF
        elif proof != frames.WRONG_PROOF:
            raise AuthError("the peer does not prove that it holds the key") from None
        raise AuthError(
            f"the peer holds another key; this side's comes from {self._key.origin}:"
            " give both sides the same PSP_KEY or PSP_KEY_FILE"
        ) from None

    def lane_token(self, attempt: int, lane: int) -> bytes:
        """Return the one-time token of a lane."""
        return self._secrets.lane_token(attempt, lane)
