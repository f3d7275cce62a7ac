"""A stream of bytes each way between two processes, over frames that may be lost or duplicated.

The stream carries the handshake between two sessions. It stays open afterwards, and continues over
another gateway if one fails. This module does no I/O: bytes of the local socket become frames, and
frames become bytes for the local socket. Used by transport/.
"""

from __future__ import annotations

from typing import Any

PIECE = 16 << 10  # maximum number of data bytes in one frame
AHEAD = 256 << 10  # number of unacknowledged bytes above which the local socket is not read

Frame = dict[str, Any]


class Tunnel:
    """One end of a tunnel, a stream of bytes each way between two processes. `label` holds the
    fields that all its frames have in common."""

    def __init__(self, label: Frame) -> None:
        self.label = label
        # bytes from the local socket that the other side has not acknowledged
        self._out = bytearray()
        self._acked = 0  # number of bytes that are acknowledged: the offset of _out in our stream
        self._sent = 0  # number of bytes of our stream that were sent in frames
        # number of bytes of our whole stream; None until the local socket has ended
        self._fin: int | None = None
        self._got = 0
        self._their_fin: int | None = None
        self._fin_acked = False

    # ---- the local side ----

    @property
    def full(self) -> bool:
        return len(self._out) >= AHEAD

    def give(self, data: bytes) -> list[Frame]:
        """Add bytes that the local socket delivered (none if it has ended), and return frames to
        send."""
        if data:
            self._out += data
        elif self._fin is None:
            self._fin = self._acked + len(self._out)
        return self.frames()

    @property
    def open(self) -> bool:
        """Whether the local side may still add bytes to its stream."""
        return self._fin is None

    @property
    def ended(self) -> bool:
        """Whether the other side has ended its stream, and all its bytes have arrived."""
        return self._their_fin is not None and self._got >= self._their_fin

    @property
    def over(self) -> bool:
        """Whether both sides have ended their streams, and the other side has acknowledged our
        end."""
        return self.ended and self._fin is not None and self._fin_acked

    # ---- the other side ----

    def take(self, frame: Frame) -> bytes:
        """Process a frame of the other side, and return its new bytes, which may be none.

        Raises `KeyError` or `ValueError` if the frame is malformed.
        """
        offset, ack, data = frame["offset"], frame["ack"], frame["data"]
        if not (_is_count(offset) and _is_count(ack) and isinstance(data, str)):
            raise ValueError("a frame of a tunnel needs offset, ack and data")
        self._acknowledged(ack, bool(frame.get("fin_ack")))
        if frame.get("fin") and self._their_fin is None:
            self._their_fin = offset + len(data) // 2
        if offset > self._got:
            return b""  # bytes before this frame were lost; the other side sends all again
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
        """Whether data or the end of our stream is not acknowledged yet."""
        return bool(self._out) or (self._fin is not None and not self._fin_acked)

    def frames(self) -> list[Frame]:
        """Return frames with the bytes that were not sent yet. There is at least one frame, because
        frames also acknowledge the other side's bytes."""
        frames = []
        while True:
            start = self._sent - self._acked
            piece = bytes(self._out[start : start + PIECE])
            self._sent += len(piece)
            frames.append(self._frame(self._sent - len(piece), piece))
            if self._sent == self._acked + len(self._out):
                return frames

    def again(self) -> list[Frame]:
        """Return frames with all bytes that the other side has not acknowledged."""
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
