"""A stream of bytes each way between two processes, over frames that may be lost or duplicated.

It carries the handshake, and the link that stays open afterwards, which survives gateways. No I/O
here: bytes of the local socket go in and frames come out, and the reverse. Used by transport/.
"""

from __future__ import annotations

from typing import Any

PIECE = 16 << 10  # bytes of one frame
AHEAD = 256 << 10  # bytes that the other side has not got yet, at most

Frame = dict[str, Any]


class Tunnel:
    """One end. `label` are the fields that all its frames have in common."""

    def __init__(self, label: Frame) -> None:
        self.label = label
        self._out = bytearray()  # what was given and is not acknowledged
        self._acked = 0  # bytes before _out
        self._sent = 0  # bytes that are in frames
        self._fin: int | None = None  # length of the whole
        self._got = 0
        self._their_fin: int | None = None
        self._fin_acked = False

    # ---- the local side ----

    @property
    def full(self) -> bool:
        return len(self._out) >= AHEAD

    def give(self, data: bytes) -> list[Frame]:
        """What the local side wrote; empty: it has ended."""
        if data:
            self._out += data
        elif self._fin is None:
            self._fin = self._acked + len(self._out)
        return self.frames()

    @property
    def open(self) -> bool:
        """The local side has not ended."""
        return self._fin is None

    @property
    def ended(self) -> bool:
        """The other side has said that no more comes, and all of it has come."""
        return self._their_fin is not None and self._got >= self._their_fin

    @property
    def over(self) -> bool:
        """Both sides have ended, and know it."""
        return self.ended and self._fin is not None and self._fin_acked

    # ---- the other side ----

    def take(self, frame: Frame) -> bytes:
        """What is new in a frame. `KeyError`, `ValueError`: it is none of a tunnel."""
        offset, ack, data = frame["offset"], frame["ack"], frame["data"]
        if not (_is_count(offset) and _is_count(ack) and isinstance(data, str)):
            raise ValueError("a frame of a tunnel needs offset, ack and data")
        self._acknowledged(ack, bool(frame.get("fin_ack")))
        if frame.get("fin") and self._their_fin is None:
            self._their_fin = offset + len(data) // 2
        if offset > self._got:
            return b""  # what is missing will be sent again
        new = bytes.fromhex(data)[self._got - offset :]
        self._got += len(new)
        return new

    def _acknowledged(self, ack: int, fin_ack: bool) -> None:
        if self._acked < ack <= self._acked + len(self._out):
            del self._out[: ack - self._acked]
            self._acked = ack
        self._sent = max(self._sent, self._acked)
        if fin_ack and self._fin == self._acked:
            self._fin_acked = True

    # ---- frames ----

    @property
    def waiting(self) -> bool:
        """The other side has not said yet that it has all."""
        return bool(self._out) or (self._fin is not None and not self._fin_acked)

    def frames(self) -> list[Frame]:
        """What is to be sent for the first time; at least one frame."""
        frames = []
        while True:
            start = self._sent - self._acked
            piece = bytes(self._out[start : start + PIECE])
            self._sent += len(piece)
            frames.append(self._frame(self._sent - len(piece), piece))
            if self._sent == self._acked + len(self._out):
                return frames

    def again(self) -> list[Frame]:
        """All that is not acknowledged."""
        self._sent = self._acked
        return self.frames()

    def _frame(self, offset: int, piece: bytes) -> Frame:
        end = offset + len(piece)
        return {
            **self.label,
            "offset": offset,
            "data": piece.hex(),
            "ack": self._got,
            "fin": self._fin is not None and end == self._fin,
            "fin_ack": self.ended,
        }


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
