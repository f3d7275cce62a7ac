"""A link as the pump keeps it: what is on its way out, what has come in, how far it is."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto

from pscompy.transport.python.base import Link
from pscompy.transport.python.proof import Accepting, Connecting

_PREFIX = struct.Struct("<I")  # length of the next frame in a stream


class Stage(Enum):
    """How far a link is."""

    CALLED = auto()  # a caller that has not said whom it wants
    WAITING = auto()  # it has said so, and that endpoint does not expect it yet
    PROVING = auto()
    UP = auto()
    CLOSING = auto()  # what was taken still goes out
    ENDED = auto()


class Channel(Link):
    """`number` is that of our endpoint, None while a caller has not named one."""

    def __init__(self, stream: bool, max_frame: int) -> None:
        self.stage = Stage.CALLED
        self.number: int | None = None
        self.nonce = b""  # a caller's, while it waits
        self.connecting: Connecting | None = None
        self.accepting: Accepting | None = None
        self.backlog: deque[bytes] = deque()  # arrived, not delivered yet
        self.reason = ""  # why it was lost, while there is a backlog
        self._stream = stream
        self._max_frame = max_frame
        self._out: deque[tuple[memoryview, bool]] = deque()
        self._joined = bytearray()

    @property
    def blocked(self) -> bool:
        """Something waits to be sent."""
        return bool(self._out)

    def push(self, frame: bytes, counted: bool) -> None:
        """Queue a frame; the counted ones are those that `flush` reports."""
        data = _PREFIX.pack(len(frame)) + frame if self._stream else frame
        self._out.append((memoryview(data), counted))

    def flush(self, send: Callable[[Link, memoryview], int]) -> int:
        """Send what can be sent; returns how many counted frames have left."""
        done = 0
        try:
            while self._out:
                data, counted = self._out[0]
                taken = send(self, data)
                if not (taken == len(data) or (self._stream and 0 <= taken < len(data))):
                    raise ValueError(f"send took {taken} of a frame of {len(data)} bytes")
                if taken < len(data):
                    self._out[0] = (data[taken:], counted)
                    break
                self._out.popleft()
                done += counted
        except BlockingIOError:
            pass
        return done

    def cut(self, data: bytes) -> Iterator[bytes]:
        """The frames that are complete with this piece."""
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
