"""Long values in a launcher's store, whose own values are short, as several pieces.

The first piece, under the key itself, begins with the number of pieces; the others are under
numbered keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pscompy.errors import ProtocolError

PREFIX_MAX = len("9999:")  # the longest prefix of the first piece


def split(key: str, value: str, room: int) -> Iterator[tuple[str, str]]:
    """Yield keys and the texts to publish under them, none longer than `room`."""
    length = room - PREFIX_MAX
    count = max(1, -(-len(value) // length))
    for index in range(count):
        piece = value[index * length : (index + 1) * length]
        yield _name(key, index), piece if index else f"{count}:{piece}"


def join(key: str, get: Callable[[str], str]) -> str:
    """Return the value that was published in pieces, each of which `get` returns."""
    count, _, value = get(key).partition(":")
    if not count.isdecimal():
        raise ProtocolError(f"the value {key} of the job is not one of pscompy's")
    return value + "".join(get(_name(key, index)) for index in range(1, int(count)))


def _name(key: str, index: int) -> str:
    return f"{key}.{index}" if index else key
