"""Fields of bounded length, of which the body of a frame is made.

Numbers are little-endian; texts are UTF-8 and, like bytes, preceded by their length in 2 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from itertools import repeat
from struct import Struct
from typing import Any, TypeVar

from pscompy.control.handshake.tables import RemoteProtocolError

T = TypeVar("T")


class Reader:
    """Reads the fields of a body; each is checked against the bytes that are left."""

    def __init__(self, data: bytes) -> None:
        self._read = BytesIO(data).read

    def take(self, size: int) -> bytes:
        piece = self._read(size)
        if len(piece) != size:
            raise RemoteProtocolError(f"frame ends {size - len(piece)} bytes too early")
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def numbers(self, layout: Struct) -> tuple[Any, ...]:
        """Read numbers that follow each other as in `layout`."""
        return layout.unpack(self.take(layout.size))

    def data(self, limit: int) -> bytes:
        length = self._read(2)
        size = int.from_bytes(length, "little")
        if size > limit:
            raise RemoteProtocolError(f"field of {size} bytes, at most {limit} are allowed")
        piece = self._read(size)
        if len(length) != 2 or len(piece) != size:
            raise RemoteProtocolError("frame ends too early")
        return piece

    def text(self, limit: int) -> str:
        try:
            return self.data(limit).decode("utf-8")
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("text that is not UTF-8") from error

    def list(self, limit: int, item: Callable[[Reader], T]) -> tuple[T, ...]:
        count = self.number(2)
        if count > limit:
            raise RemoteProtocolError(f"list of {count}, at most {limit} are allowed")
        return tuple(map(item, repeat(self, count)))

    def end(self) -> None:
        if rest := self._read():
            raise RemoteProtocolError(f"{len(rest)} bytes too many in frame")


class Writer:
    """Writes the fields of a body. A text that is too long is cut; any other field that is too long
    raises `ValueError`."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.raw = self._pieces.append  # writes bytes whose length the reader knows

    def number(self, value: int, size: int) -> None:
        self.raw(value.to_bytes(size, "little"))

    def data(self, data: bytes, limit: int) -> None:
        if len(data) > limit:
            raise ValueError(f"field of {len(data)} bytes, at most {limit} are allowed")
        self.raw(len(data).to_bytes(2, "little"))
        self.raw(data)

    def text(self, text: str, limit: int) -> None:
        self.data(text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore").encode(), limit)

    def count(self, count: int, limit: int) -> None:
        if count > limit:
            raise ValueError(f"list of {count}, at most {limit} are allowed")
        self.number(count, 2)

    def bytes(self) -> bytes:
        return b"".join(self._pieces)
