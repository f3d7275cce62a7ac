"""Fields of bounded length, of which the body of a frame is made.

Numbers are little-endian; texts are UTF-8 and, like bytes, preceded by their length in 2 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, TypeVar

from pscompy.control.handshake.tables import RemoteProtocolError

T = TypeVar("T")


class Reader:
    """Reads the fields of a body; each is checked against the bytes that are left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) != size:
            raise RemoteProtocolError(f"frame ends {size - len(piece)} bytes too early")
        self._at += size
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def numbers(self, layout: Struct) -> tuple[Any, ...]:
        """Read numbers that follow each other as in `layout`."""
        return layout.unpack(self.take(layout.size))

    def data(self, limit: int) -> bytes:
        size = self.number(2)
        if size > limit:
            raise RemoteProtocolError(f"field of {size} bytes, at most {limit} are allowed")
        return self.take(size)

    def text(self, limit: int) -> str:
        try:
            return self.data(limit).decode("utf-8")
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("text that is not UTF-8") from error

    def list(self, limit: int, item: Callable[[Reader], T]) -> tuple[T, ...]:
        count = self.number(2)
        if count > limit:
            raise RemoteProtocolError(f"list of {count}, at most {limit} are allowed")
        return tuple(item(self) for _ in range(count))

    def end(self) -> None:
        if self._at != len(self._data):
            raise RemoteProtocolError(f"{len(self._data) - self._at} bytes too many in frame")


class Writer:
    """Writes the fields of a body. A text that is too long is cut; any other field that is too long
    raises `ValueError`."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def raw(self, data: bytes) -> None:
        self._pieces.append(data)

    def number(self, value: int, size: int) -> None:
        self.raw(value.to_bytes(size, "little"))

    def data(self, data: bytes, limit: int) -> None:
        if len(data) > limit:
            raise ValueError(f"field of {len(data)} bytes, at most {limit} are allowed")
        self.number(len(data), 2)
        self.raw(data)

    def text(self, text: str, limit: int) -> None:
        self.data(text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore").encode(), limit)

    def count(self, count: int, limit: int) -> None:
        if count > limit:
            raise ValueError(f"list of {count}, at most {limit} are allowed")
        self.number(count, 2)

    def bytes(self) -> bytes:
        return b"".join(self._pieces)
