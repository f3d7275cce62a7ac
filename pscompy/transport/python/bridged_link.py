"""A link of the pump, with its stage and the frames queued in both directions."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto

from pscompy.transport.python.base import Link
from pscompy.transport.python.proof import Proof

_PREFIX = struct.Struct("<I")  # length of the next frame in a stream


class Stage(Enum):
    """The stages of a link, from a caller that has just connected to the end."""

    CALLED = auto()  # a peer has connected and has not named the endpoint that it wants
    WAITING = auto()  # the caller has named an endpoint, which does not expect it yet
    PROVING = auto()  # the token proof is in progress
    UP = auto()
    CLOSING = auto()  # queued frames are still being sent
    ENDED = auto()


class BridgedLink(Link):
    """A link with its queued frames. `number` is the number of our endpoint, or None if the caller
    has not named one."""

    def __init__(self, stream: bool, max_frame: int) -> None:
        self.stage = Stage.CALLED
        self.number: int | None = None
        self.nonce = b""  # nonce of a caller's hello, in stage WAITING
        self.proof: Proof | None = None
        self.backlog: deque[bytes] = deque()  # frames that have arrived, not delivered yet
        self.reason = ""  # why the link was lost, if a backlog is still to be delivered
        self._stream = stream
        self._max_frame = max_frame
        self._out: deque[tuple[memoryview, bool]] = deque()
        self._joined = bytearray()

    @property
    def blocked(self) -> bool:
        """True if frames are queued for sending."""
        return bool(self._out)

    def push(self, frame: bytes, counted: bool) -> None:
        """Queue a frame. `flush` returns how many frames with `counted` it has sent."""
        data = _PREFIX.pack(len(frame)) + frame if self._stream else frame
        self._out.append((memoryview(data), counted))

    def flush(self, send: Callable[[Link, memoryview], int]) -> int:
        """Send the queued frames until `send` takes no more. Returns how many of the frames that
        were queued as `counted` have been sent."""
        done = 0
        try:
            while self._out:
                data, counted = self._out[0]
                taken = send(self, data)
                if not isinstance(taken, int):
                    raise TypeError(f"send() returned {taken!r}, not a number of bytes")
                if not (taken == len(data) or (self._stream and 0 <= taken < len(data))):
                    raise ValueError(f"send() took {taken} of a frame of {len(data)} bytes")
                if taken < len(data):
                    self._out[0] = (data[taken:], counted)
                    break
                self._out.popleft()
                done += counted
        except BlockingIOError:
            pass
        return done

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Yield the frames that are complete with this piece of the received data."""
        if not self._stream:
            yield self._checked(data)
            return
        self._joined += data
        while len(self._joined) >= _PREFIX.size:
            (length,) = _PREFIX.unpack_from(self._joined)
            if length > self._max_frame:
                raise ConnectionError(f"the peer announces a frame of {length} bytes")
            end = _PREFIX.size + length
            if len(self._joined) < end:
                return
            frame = bytes(self._joined[_PREFIX.size : end])
            del self._joined[:end]
            yield frame

    def _checked(self, frame: bytes) -> bytes:
        if len(frame) > self._max_frame:
            raise ConnectionError(f"the peer sent a frame of {len(frame)} bytes")
        return bytes(frame)
